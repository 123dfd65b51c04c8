//! Cuts what a server sends into answers.

use redis::{ErrorKind, RedisError, RedisResult, Value, parse_redis_value};

/// No line of an answer is longer: texts have a length of their own.
const LONGEST_LINE: usize = 64 * 1024;

/// No answer is longer, as no text in Redis is: the largest page of an audit log and a record with
/// 10,000 claims have less than a fifth of it.
const LONGEST_ANSWER: usize = 512 * 1024 * 1024;

/// How much room is kept between answers.
const ROOM: usize = 64 * 1024;

/// What has arrived and was not read yet.
#[derive(Debug, Default)]
pub(super) struct Frames {
    pub(super) arrived: Vec<u8>,
    /// Where the next answer begins.
    start: usize,
    /// How far it was looked at: a long answer arrives in pieces, and no value is looked at twice.
    seen: usize,
    /// How many values are still to come before it ends; 0: nothing of it was seen.
    open: u64,
}

impl Frames {
    /// The next answer, if all of it has arrived.
    ///
    /// # Errors
    /// What has arrived is none: the other side is no Redis server.
    pub(super) fn next(&mut self) -> RedisResult<Option<Value>> {
        self.open = self.open.max(1);
        while self.open > 0 {
            let Some(length) = self.length_of_value() else {
                // Answers may never end where a piece does: what was read must not stay for ever.
                self.arrived.drain(..self.start);
                self.seen -= std::mem::take(&mut self.start);
                return self.check_rest().map(|()| None);
            };
            self.seen += length;
        }
        let answer = parse_redis_value(&self.arrived[self.start..self.seen])?;
        self.start = self.seen;
        if self.start == self.arrived.len() {
            self.arrived.clear();
            self.arrived.shrink_to(ROOM);
            (self.start, self.seen) = (0, 0);
        }
        // What a server says of an answer besides is for nobody here.
        Ok(Some(match answer {
            Value::Attribute { data, .. } => *data,
            answer => answer,
        }))
    }

    /// The length of the next value without those within it, once it has arrived.
    fn length_of_value(&mut self) -> Option<usize> {
        let rest = &self.arrived[self.seen..];
        let line = rest.windows(2).position(|two| two == b"\r\n")?;
        // None of an empty line, which is no answer.
        let text = rest.get(1..line).unwrap_or_default();
        let text = std::str::from_utf8(text).unwrap_or_default();
        let count = text.parse::<u64>().ok();
        let (mut length, mut within) = (line + 2, 0);
        match (rest[0], count) {
            // A text of so many bytes and the end of its line.
            (b'$' | b'!' | b'=', Some(count)) => {
                let text = usize::try_from(count).unwrap_or(usize::MAX);
                length = length.saturating_add(text).saturating_add(2);
            }
            (b'*' | b'~' | b'>', Some(count)) => within = count,
            (b'%', Some(count)) => within = count.saturating_mul(2),
            // Attributes, and what they are about.
            (b'|', Some(count)) => within = count.saturating_mul(2).saturating_add(1),
            _ => {}
        }
        let whole = length <= rest.len();
        whole.then(|| {
            self.open = (self.open - 1).saturating_add(within);
            length
        })
    }

    /// Whether what has arrived may become an answer: what is none may never end, nor have a line's
    /// end.
    fn check_rest(&self) -> RedisResult<()> {
        let rest = &self.arrived[self.seen..];
        let is_kind = |kind: &u8| b"+-:$*_#,!=(%~>|".contains(kind);
        let is_end = |two: &[u8]| two == b"\r\n";
        let endless = rest.len() > LONGEST_LINE && !rest[..LONGEST_LINE].windows(2).any(is_end);
        match rest.first().is_none_or(is_kind) && !endless && self.arrived.len() <= LONGEST_ANSWER {
            true => Ok(()),
            false => Err(RedisError::from((ErrorKind::Parse, "this is no answer"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWERS: &[u8] = b"+OK\r\n$-1\r\n$4\r\na\r\nb\r\n*2\r\n:7\r\n*1\r\n$0\r\n\r\n\
        -NOSCRIPT no\r\n%1\r\n+a\r\n_\r\n>3\r\n+message\r\n$1\r\nc\r\n$2\r\nhi\r\n*0\r\n\
        =5\r\ntxt:x\r\n~1\r\n#t\r\n|1\r\n+k\r\n,1.5\r\n:3\r\n";

    #[test]
    fn answers_are_the_same_however_they_arrive() {
        let read = |size: usize| {
            let (mut frames, mut read) = (Frames::default(), Vec::new());
            for piece in ANSWERS.chunks(size) {
                frames.arrived.extend_from_slice(piece);
                while let Some(answer) = frames.next().unwrap() {
                    read.push(answer);
                }
            }
            assert!(frames.arrived.is_empty(), "{size}");
            read
        };
        let whole = read(ANSWERS.len());
        assert_eq!(whole.len(), 11);
        assert_eq!(whole[2], Value::BulkString(b"a\r\nb".to_vec()));
        let nested = Value::Array(vec![Value::BulkString(Vec::new())]);
        assert_eq!(whole[3], Value::Array(vec![Value::Int(7), nested]));
        assert_eq!(whole[10], Value::Int(3), "without its attributes");
        for size in 1..40 {
            assert_eq!(read(size), whole, "in pieces of {size}");
        }
    }

    #[test]
    fn what_is_no_answer_is_an_error_at_once() {
        for other in [
            &b"HTTP/1.1 400 Bad Request\r\n"[..],
            b"\x15\x03\x01",
            b"*1\r\nx",
            b"*1\r\n*2\r\n\0",
            b"\r\n",
            b"*1\r\n\r\n",
        ] {
            let mut frames = Frames::default();
            frames.arrived.extend_from_slice(other);
            assert!(frames.next().is_err(), "{other:?}");
        }
    }

    #[test]
    fn what_was_read_does_not_stay_though_no_piece_ends_with_an_answer() {
        let mut frames = Frames::default();
        frames.arrived.extend_from_slice(b"+O");
        for _ in 0..10_000 {
            frames.arrived.extend_from_slice(b"K\r\n+O");
            assert_eq!(frames.next().unwrap(), Some(Value::Okay));
            assert_eq!(frames.next().unwrap(), None);
        }
        assert_eq!(frames.arrived, b"+O");
    }

    #[test]
    fn a_line_without_an_end_is_an_error() {
        let piece = [b'+'; 16 * 1024];
        // Half of an end is none.
        for piece in [piece, [b'\n'; 16 * 1024]] {
            let mut frames = Frames::default();
            frames.arrived.push(b'+');
            let failed = (0..8).find_map(|_| {
                frames.arrived.extend_from_slice(&piece);
                frames.next().err()
            });
            assert_eq!(failed.unwrap().kind(), ErrorKind::Parse);
        }
        let mut frames = Frames::default();
        frames.arrived.extend_from_slice(b"$200000\r\n");
        for _ in 0..8 {
            frames.arrived.extend_from_slice(&piece);
            assert_eq!(frames.next().unwrap(), None, "a long text");
        }
    }

    #[test]
    fn an_answer_without_an_end_is_an_error() {
        // All of it was looked at but the beginning of one more value. Pages of zeroes that nobody
        // touches take no memory.
        let next = |length: usize| {
            let mut arrived = vec![0; length];
            arrived[length - 1] = b'*';
            let (seen, open) = (length - 1, 1);
            let mut frames = Frames {
                arrived,
                seen,
                open,
                ..Frames::default()
            };
            frames.next()
        };
        assert_eq!(next(LONGEST_ANSWER).unwrap(), None);
        let failed = next(LONGEST_ANSWER + 1).unwrap_err();
        assert_eq!(failed.kind(), ErrorKind::Parse);
    }

    #[test]
    fn a_length_that_no_answer_has_is_waited_for() {
        for endless in [
            &b"$18446744073709551615\r\nx\r\n"[..],
            b"*18446744073709551615\r\n",
            b"%18446744073709551615\r\n|18446744073709551615\r\n",
        ] {
            let mut frames = Frames::default();
            frames.arrived.extend_from_slice(endless);
            assert_eq!(frames.next().unwrap(), None, "{endless:?}");
        }
    }
}
