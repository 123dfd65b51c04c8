//! Just enough of the Redis protocol (versions 2 and 3) to cut a stream into commands and answers.

use super::End;

/// A stream cut into frames as its bytes come.
///
/// What does not look like the protocol (TLS, commands typed by hand) is passed through uncut, and
/// so is all that follows it: faults that need no understanding work on it as well.
#[derive(Debug)]
pub struct Splitter {
    /// From the client come arrays of bulk strings, from the server anything.
    speaker: End,
    pending: Vec<u8>,
    /// What comes from now on is passed uncut.
    pub(super) opaque: bool,
}

/// A part of a stream.
#[derive(Debug, PartialEq, Eq)]
pub enum Piece {
    /// One whole command, answer or push.
    Frame(Vec<u8>),
    /// Bytes of something else.
    Raw(Vec<u8>),
}

impl Splitter {
    /// The stream of what that end says, from its start.
    pub fn new(speaker: End) -> Self {
        Self {
            speaker,
            pending: Vec::new(),
            opaque: false,
        }
    }

    /// Takes the bytes that have come and returns the pieces that they complete.
    pub fn split(&mut self, bytes: &[u8]) -> Vec<Piece> {
        self.pending.extend_from_slice(bytes);
        let mut pieces = Vec::new();
        let mut done = 0;
        while !self.opaque && done < self.pending.len() {
            let rest = &self.pending[done..];
            let expected = self.speaker == End::Server || rest[0] == b'*';
            match frame_length(rest) {
                Ok(Some(length)) if expected => {
                    pieces.push(Piece::Frame(rest[..length].to_vec()));
                    done += length;
                }
                Ok(None) if expected => break,
                _ => self.opaque = true,
            }
        }
        self.pending.drain(..done);
        if self.opaque && !self.pending.is_empty() {
            pieces.push(Piece::Raw(std::mem::take(&mut self.pending)));
        }
        pieces
    }
}

/// This is not the Redis protocol.
#[derive(Debug, PartialEq, Eq)]
struct Foreign;

/// How long the frame at the start of `bytes` is; none while it is not whole.
///
/// An aggregate is its header and so many more frames: counting those that are still to come does
/// without recursion.
fn frame_length(bytes: &[u8]) -> Result<Option<usize>, Foreign> {
    let (mut at, mut to_come) = (0, 1);
    while to_come > 0 {
        let Some(&kind) = bytes.get(at) else {
            return Ok(None);
        };
        if !b"+-:_#,($!=*~>%|".contains(&kind) {
            return Err(Foreign);
        }
        let Some(line) = line(&bytes[at + 1..]) else {
            return Ok(None);
        };
        at += 1 + line.len() + 2;
        to_come -= 1;
        match kind {
            b'$' | b'!' | b'=' => at += length(line)?.map_or(0, |length| length + 2),
            b'*' | b'~' | b'>' => to_come += length(line)?.unwrap_or(0),
            b'%' => to_come += 2 * length(line)?.unwrap_or(0),
            // Attributes say something about the frame behind them, and are part of it here.
            b'|' => to_come += 2 * length(line)?.unwrap_or(0) + 1,
            _ => {}
        }
    }
    Ok((at <= bytes.len()).then_some(at))
}

/// What comes before the next line end.
fn line(bytes: &[u8]) -> Option<&[u8]> {
    let end = bytes.windows(2).position(|window| window == b"\r\n")?;
    Some(&bytes[..end])
}

/// A length: none for -1, which stands for nothing at all.
fn length(line: &[u8]) -> Result<Option<usize>, Foreign> {
    if line == b"-1" {
        return Ok(None);
    }
    let digits = std::str::from_utf8(line).map_err(|_| Foreign)?;
    let length: u32 = digits.parse().map_err(|_| Foreign)?;
    Ok(Some(length as usize))
}

/// The strings at the top of a whole frame, such as the arguments of a command; those of other
/// types are empty.
pub fn strings(frame: &[u8]) -> Vec<Vec<u8>> {
    let mut rest = frame;
    let mut strings = Vec::new();
    // The header of the aggregate.
    let Some(header) = line(rest) else {
        return strings;
    };
    rest = &rest[header.len() + 2..];
    while let Ok(Some(whole)) = frame_length(rest) {
        let (frame, next) = rest.split_at(whole);
        let string = match frame[0] {
            b'$' => line(frame).and_then(|header| frame.get(header.len() + 2..frame.len() - 2)),
            b'+' => frame.get(1..frame.len() - 2),
            _ => None,
        };
        strings.push(string.unwrap_or_default().to_vec());
        rest = next;
    }
    strings
}

/// What a frame from a server is to the one who waits for answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// The answer to a command.
    Answer,
    /// The answer to a command, and it is an error.
    Error,
    /// Says that a subscription has begun or ended.
    Confirmation,
    /// Nobody has asked.
    Push,
}

impl Reply {
    /// In version 2 the messages of a subscriber are arrays like any other: `subscriber` says that
    /// the connection has become one, which has no other use for arrays that start like that.
    pub(super) fn of(frame: &[u8], subscriber: bool) -> Self {
        match frame[0] {
            b'-' | b'!' => Self::Error,
            b'>' | b'*' => {
                let first = strings(frame).into_iter().next().unwrap_or_default();
                let pushed = frame[0] == b'>';
                match first.as_slice() {
                    name if (pushed || subscriber) && is_subscription(name) => Self::Confirmation,
                    b"message" | b"pmessage" | b"smessage" if subscriber => Self::Push,
                    _ if pushed => Self::Push,
                    _ => Self::Answer,
                }
            }
            _ => Self::Answer,
        }
    }
}

/// Whether this is `SUBSCRIBE` or one of its family, which are answered by confirmations.
pub(super) fn is_subscription(command: &[u8]) -> bool {
    let family = "subscribe psubscribe ssubscribe unsubscribe punsubscribe sunsubscribe";
    let mut family = family.split(' ');
    family.any(|name| command.eq_ignore_ascii_case(name.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(text: &str) -> Piece {
        Piece::Frame(text.as_bytes().to_vec())
    }

    fn raw(bytes: &[u8]) -> Piece {
        Piece::Raw(bytes.to_vec())
    }

    /// Every frame must come out whole, however the network has cut the stream.
    fn assert_frames(speaker: End, frames: &[&str]) {
        let stream = frames.concat();
        let expected: Vec<_> = frames.iter().map(|text| frame(text)).collect();
        for size in 1..=stream.len() {
            let mut splitter = Splitter::new(speaker);
            let pieces = stream.as_bytes().chunks(size);
            let pieces = pieces.flat_map(|chunk| splitter.split(chunk));
            assert_eq!(pieces.collect::<Vec<_>>(), expected, "in chunks of {size}");
        }
    }

    #[test]
    fn commands_are_cut_out_of_the_stream() {
        let commands = [
            "*1\r\n$4\r\nPING\r\n",
            "*3\r\n$3\r\nSET\r\n$0\r\n\r\n$6\r\na\r\n*1\r\r\n",
            "*0\r\n",
            "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n",
        ];
        assert_frames(End::Client, &commands);
        let set = strings(commands[1].as_bytes());
        assert_eq!(set, [b"SET".to_vec(), b"".to_vec(), b"a\r\n*1\r".to_vec()]);
    }

    #[test]
    fn answers_of_every_type_are_cut_out_of_the_stream() {
        assert_frames(
            End::Server,
            &[
                "+OK\r\n",
                "-ERR no\r\n",
                ":1\r\n",
                "$-1\r\n",
                "$5\r\nhello\r\n",
                "*-1\r\n",
                "*0\r\n",
                "*2\r\n*2\r\n:1\r\n$1\r\nx\r\n*1\r\n+y\r\n",
                "_\r\n",
                "#t\r\n",
                ",1.5\r\n",
                "(12345678901234567890\r\n",
                "!5\r\nERR x\r\n",
                "=7\r\ntxt:abc\r\n",
                "%2\r\n+a\r\n:1\r\n+b\r\n*1\r\n:2\r\n",
                "~2\r\n:1\r\n:2\r\n",
                "|1\r\n+ttl\r\n:10\r\n$1\r\nv\r\n",
                ">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nm\r\n",
            ],
        );
    }

    #[test]
    fn what_is_not_the_protocol_passes_uncut() {
        let mut splitter = Splitter::new(End::Client);
        let command = "*1\r\n$4\r\nPING\r\n";
        let pieces = splitter.split(format!("{command}PING\r\n").as_bytes());
        assert_eq!(pieces, [frame(command), raw(b"PING\r\n")]);
        assert_eq!(splitter.split(b"*1"), [raw(b"*1")]);

        let hello = [0x16, 3, 1, 0, 5];
        for speaker in [End::Client, End::Server] {
            assert_eq!(Splitter::new(speaker).split(&hello), [raw(&hello)]);
        }
        let lie = b"*1\r\n$x\r\n";
        assert_eq!(Splitter::new(End::Client).split(lie), [raw(lie)]);
    }

    #[test]
    fn pushes_are_told_from_answers() {
        let message = "3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nm\r\n";
        let confirmation = "3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n";
        let invalidation = "2\r\n$10\r\ninvalidate\r\n*1\r\n+k\r\n";
        for (kind, rest, subscriber, expected) in [
            ("*", message, false, Reply::Answer),
            ("*", message, true, Reply::Push),
            (">", message, false, Reply::Push),
            (">", invalidation, false, Reply::Push),
            (">", confirmation, true, Reply::Confirmation),
            ("*", confirmation, true, Reply::Confirmation),
            ("*", confirmation, false, Reply::Answer),
            ("*", "2\r\n$4\r\npong\r\n$0\r\n\r\n", true, Reply::Answer),
            ("-", "ERR\r\n", true, Reply::Error),
            ("!", "3\r\nERR\r\n", true, Reply::Error),
            ("|", "1\r\n+a\r\n:1\r\n+OK\r\n", false, Reply::Answer),
        ] {
            let frame = [kind, rest].concat();
            let found = Reply::of(frame.as_bytes(), subscriber);
            assert_eq!(found, expected, "{frame:?} to a subscriber: {subscriber}");
        }
    }
}
