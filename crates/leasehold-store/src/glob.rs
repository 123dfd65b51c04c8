//! Glob patterns of [`LockStore::listing`](crate::LockStore::listing), with the syntax of Redis.

/// Returns whether `name` matches the glob `pattern`: `*`, `?`, `[abc]`, `[^abc]`, `[a-z]`, and
/// `\` before a literal character.
///
/// Compares bytes, as Redis does, so that all stores list the same keys. The worst-case time is
/// the product of both lengths, for every pattern.
#[must_use]
pub fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let (mut p, mut n) = (0, 0);
    // Where to go on after the last `*`, should what follows it not match.
    let mut retry: Option<(usize, usize)> = None;
    while n < name.len() {
        if pattern.get(p) == Some(&b'*') {
            p += 1;
            retry = Some((p, n));
        } else if let Some(width) = matched_width(&pattern[p..], name[n]) {
            p += width;
            n += 1;
        } else if let Some((after_star, eaten)) = retry {
            (p, n) = (after_star, eaten + 1);
            retry = Some((p, n));
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

/// What the names that match the pattern begin with.
#[must_use]
pub fn literal_prefix(pattern: &str) -> &str {
    let end = pattern.find(['*', '?', '[', '\\']).unwrap_or(pattern.len());
    &pattern[..end]
}

/// How much of the pattern stands for `byte`; `None` if it does not match it.
fn matched_width(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [] => None,
        [b'?', ..] => Some(1),
        [b'[', class @ ..] => matched_class(class, byte).map(|width| width + 1),
        [b'\\', literal, ..] => (*literal == byte).then_some(2),
        [literal, ..] => (*literal == byte).then_some(1),
    }
}

/// The width of a class, closing bracket included, if it holds `byte`. One that
/// is never closed ends with the pattern.
fn matched_class(class: &[u8], byte: u8) -> Option<usize> {
    let negated = class.first() == Some(&b'^');
    let mut at = usize::from(negated);
    let mut found = false;
    loop {
        let (width, is_in) = match &class[at..] {
            [] => break,
            [b']', ..] => {
                at += 1;
                break;
            }
            [b'\\', literal, ..] => (2, *literal == byte),
            [from, b'-', to, ..] => (3, (*from.min(to)..=*from.max(to)).contains(&byte)),
            [literal, ..] => (1, *literal == byte),
        };
        at += width;
        found |= is_in;
    }
    (found != negated).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn as_redis_has_it() {
        for (pattern, name, expected) in [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("*", "orders/42", true),
            ("orders/*", "orders/42", true),
            ("orders/*", "order/42", false),
            ("*/42", "orders/42", true),
            ("*a*b*", "xxaxxbxx", true),
            ("*a*b*", "xxbxxaxx", false),
            ("a**b", "ab", true),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("?", "", false),
            ("h[ae]llo", "hallo", true),
            ("h[ae]llo", "hillo", false),
            ("h[^e]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-c]llo", "hbllo", true),
            ("h[c-a]llo", "hbllo", true),
            ("h[a-c]llo", "hdllo", false),
            ("[]", "a", false),
            ("[^]", "a", true),
            ("[ab", "b", true),
            ("[a\\]b]", "]", true),
            ("a\\*c", "a*c", true),
            ("a\\*c", "abc", false),
            ("a\\", "a\\", true),
            ("[a-]", "-", false),
            ("{x}:*", "{x}:1", true),
            ("*.rs", "a.rs.rs", true),
            ("ключ*", "ключ-1", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern:?} on {name:?}");
        }
    }

    #[test]
    fn many_stars_take_no_longer() {
        let pattern = "a*".repeat(200) + "b";
        assert!(!matches(&pattern, &"a".repeat(512)));
    }
}
