//! Records of any bytes, for the fuzzer and for tests.

use super::{Half, frame};

/// A file in which those lines are the frames.
pub(crate) fn file<'a>(lines: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let framed = |(lines, number): (&[u8], u64)| {
        let frame = frame(number, |bytes| {
            bytes.extend(lines);
            Ok(())
        });
        frame.unwrap_or_default()
    };
    let bytes: Vec<_> = lines.into_iter().zip(1..).flat_map(framed).collect();
    let half = Half {
        first: 1,
        ..Half::beyond(0, bytes.len())
    };
    let mut file = half.line();
    file.resize(half.at, 0);
    file.extend(bytes);
    file.resize(half.size(), 0);
    file
}

/// Those bytes, as far as they are there: a [`Source`](super::Source).
pub(crate) fn within(bytes: &[u8], at: usize, length: usize) -> Vec<u8> {
    let bytes = bytes.get(at..).unwrap_or_default();
    bytes[..length.min(bytes.len())].to_vec()
}
