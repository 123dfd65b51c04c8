//! Patterns of `list`: a pattern and a name, a line each.

use leasehold::fuzzing::{glob, redis};

pub(crate) fn run(text: &str) {
    let (pattern, name) = text.split_once('\n').unwrap_or((text, text));
    // The reference takes its time.
    if pattern.bytes().filter(|byte| *byte == b'*').count() <= 4 && name.len() <= 64 {
        let expected = matches(pattern.as_bytes(), name.as_bytes());
        assert_eq!(glob(pattern, name), expected, "{pattern:?} on {name:?}");
    } else {
        glob(pattern, name);
    }
    let literally = redis::escape(name);
    assert!(glob(&literally, name), "{literally:?} on {name:?}");
    assert!(glob(&format!("{literally}*"), &format!("{name}{pattern}")));
    assert_eq!(glob(&literally, pattern), name == pattern);
}

/// As the server has it (`stringmatchlen` of Redis 7.0, `util.c`), by recursion.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let Some((first, rest)) = pattern.split_first() else {
        return name.is_empty();
    };
    if *first == b'*' {
        return (0..=name.len()).any(|eaten| matches(rest, &name[eaten..]));
    }
    let Some((byte, name)) = name.split_first() else {
        return false;
    };
    match (first, rest.split_first()) {
        (b'?', _) => matches(rest, name),
        (b'\\', Some((literal, rest))) => literal == byte && matches(rest, name),
        (b'[', _) => {
            let (found, rest) = class(rest, *byte);
            found && matches(rest, name)
        }
        _ => first == byte && matches(rest, name),
    }
}

fn class(mut pattern: &[u8], byte: u8) -> (bool, &[u8]) {
    let negated = pattern.first() == Some(&b'^');
    if negated {
        pattern = &pattern[1..];
    }
    let mut found = false;
    while let Some((first, rest)) = pattern.split_first() {
        if *first == b'\\' && !rest.is_empty() {
            found |= rest[0] == byte;
            pattern = &rest[1..];
        } else if *first == b']' {
            pattern = rest;
            break;
        } else if rest.len() >= 2 && rest[0] == b'-' {
            let (low, high) = (*first.min(&rest[1]), *first.max(&rest[1]));
            found |= low <= byte && byte <= high;
            pattern = &rest[2..];
        } else {
            found |= *first == byte;
            pattern = rest;
        }
    }
    (found != negated, pattern)
}
