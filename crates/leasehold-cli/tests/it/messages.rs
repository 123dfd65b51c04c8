//! Every sentence in the code of the command, in one file that is reviewed as a text.
//!
//! Texts that are files, such as `src/exit.txt`, are read there.
//! `messages.txt` beside `Cargo.toml` has the texts of the command and of the crates that it is
//! made of, file by file, with `{}` where values are put in. `LEASEHOLD_UPDATE=1 scripts/test
//! messages::` writes it anew.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::common::files_below;
use crate::pages::root;

/// The longest sentence that is no hint: what a terminal shows in one line.
const LONGEST: usize = 100;

/// The command, and what it is made of.
const CRATES: &str = "leasehold-cli leasehold-console leasehold leasehold-core leasehold-store \
    leasehold-local leasehold-postgres leasehold-zookeeper leasehold-redis";

/// How texts begin that are no messages: paragraphs that are wrapped, lists in hints, headers, SQL.
const OTHERS: [&str; 13] = [
    "Exclusion ",
    "ACL SETUSER ",
    "layout, prefix, ",
    "quorum, max_ttl, ",
    "default-src ",
    "GRANT USAGE ",
    "begin; ",
    "call {schema}",
    "delete from {schema}",
    "listen \"",
    "select ",
    "set tcp_",
    "unlisten ",
];

/// What a text is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Sentence,
    Hint,
}

#[test]
fn every_sentence_is_in_the_file_of_messages() {
    let mut shown = String::new();
    for (file, texts) in all_texts() {
        writeln!(shown, "\n{file}").unwrap();
        for (kind, text) in texts {
            let mark = if kind == Kind::Hint { "hint: " } else { "" };
            writeln!(shown, "    {mark}{}", text.replace('\n', "\\n")).unwrap();
        }
    }
    let path = root().join("crates/leasehold-cli/messages.txt");
    if std::env::var_os("LEASEHOLD_UPDATE").is_some() {
        fs::write(&path, shown.trim_start()).unwrap();
        return;
    }
    let listed = fs::read_to_string(&path).unwrap();
    let (listed, shown): (BTreeSet<_>, BTreeSet<_>) =
        (listed.lines().collect(), shown.lines().collect());
    let new = shown.difference(&listed);
    let new: Vec<_> = new.filter(|line| !line.is_empty()).collect();
    let gone: Vec<_> = listed.difference(&shown).collect();
    assert!(
        new.is_empty() && gone.is_empty(),
        "messages have changed: review them, and run LEASEHOLD_UPDATE=1 scripts/test messages::\n\
         new: {new:#?}\ngone: {gone:#?}"
    );
}

#[test]
fn a_sentence_fits_a_line() {
    let texts = all_texts();
    let long: Vec<_> = texts
        .iter()
        .flat_map(|(file, texts)| texts.iter().map(move |text| (file, text)))
        .filter(|(_, (kind, _))| *kind == Kind::Sentence)
        .flat_map(|(file, (_, text))| text.lines().map(move |line| (file, line)))
        .filter(|(_, line)| line.chars().count() > LONGEST && !is_row(line))
        .map(|(file, line)| format!("{file}: {line}"))
        .collect();
    assert!(
        long.is_empty(),
        "shorten these, or make a part of them a hint:\n{}",
        long.join("\n")
    );
}

/// A duration reads `1.333333333s` or `172800s` as Rust shows it: `written` is for people.
#[test]
fn no_message_shows_a_duration_as_rust_does() {
    // What may stand in quotes: names of values, or, where there is none, texts.
    const QUOTED: &str = "scheme name near term host found key text pair group path other master \
        prefix query value reply verb mode feature command";
    const NAMELESS: [&str; 6] = [
        "no such path: ",
        "{method} is not allowed at ",
        "write it in quotes: {} = ",
        "these are the parts of a lease on ",
        "a free lock was not granted: ",
        "the primary ",
    ];
    for (file, texts) in all_texts() {
        for (_, text) in texts {
            for (at, _) in text.match_indices(":?}") {
                let before = &text[..at];
                let (said, name) = before.rsplit_once('{').unwrap_or((before, ""));
                let is_known = match name {
                    "" => NAMELESS.contains(&said),
                    name => QUOTED.split_whitespace().any(|it| it == name),
                };
                assert!(is_known, "{file}: a duration, or one for the lists? {text}");
            }
        }
    }
}

#[test]
fn texts_of_code_are_found_and_those_of_tests_and_attributes_are_not() {
    let source = r##"
        //! A text in documentation.
        #[arg(help = "a text in an attribute")]
        fn f() -> Failure {
            assert!(true, "a text in an assertion");
            Failure::usage(format!("no such {}", "a")).hint("do \"this\", \
                or that")
        }
        fn g() -> Invalid { Invalid::new(format!("a key of {n} bytes"), "use a shorter one") }
        #[cfg(test)]
        mod tests { const TEXT: &str = "a text of a test"; }
        const RAW: &str = r#"a raw "text" here"#;
    "##;
    let found = texts_of(source);
    let expected = [
        (Kind::Sentence, "no such {}"),
        (Kind::Hint, "do \"this\", or that"),
        (Kind::Sentence, "a key of {n} bytes"),
        (Kind::Hint, "use a shorter one"),
        (Kind::Sentence, "a raw \"text\" here"),
    ];
    assert_eq!(found, expected.map(|(kind, text)| (kind, text.to_owned())));
}

/// The texts of each file, in the order in which they stand there.
fn all_texts() -> Vec<(String, Vec<(Kind, String)>)> {
    let (root, mut files) = (root(), Vec::new());
    for of in CRATES.split(' ') {
        let source = root.join("crates").join(of).join("src");
        let mut found = files_below(&source, ".rs");
        found.retain(|file| ships(file.strip_prefix(&source).unwrap()));
        found.sort();
        files.extend(found);
    }
    let texts = files.into_iter().map(|file| {
        let texts = texts_of(&fs::read_to_string(&file).unwrap());
        let name = file.strip_prefix(&root).unwrap().display().to_string();
        (name, texts)
    });
    texts.filter(|(_, texts)| !texts.is_empty()).collect()
}

/// Whether a file below `src` has code that ships: it is no test as a whole.
fn ships(file: &Path) -> bool {
    // The contract is run by tests of stores.
    let others = ["tests", "contract", "contract.rs", "fuzzing.rs"];
    let mut parts = file.iter().map(|part| part.to_string_lossy());
    !parts.any(|part| others.contains(&&*part) || part.ends_with("tests.rs"))
}

fn texts_of(source: &str) -> Vec<(Kind, String)> {
    let tokens: TokenStream = source.parse().expect("code that compiles");
    let mut texts = Vec::new();
    collect(tokens, Kind::Sentence, &mut texts);
    texts.retain(|(_, text)| is_sentence(text));
    texts
}

/// A row of a table, which help texts wrap, or an example; or one of [`OTHERS`].
fn is_row(line: &str) -> bool {
    line.contains("  ") || OTHERS.iter().any(|start| line.starts_with(start))
}

/// Words with a space between them.
fn is_sentence(text: &str) -> bool {
    let text = text.trim();
    text.contains(' ') && text.contains(char::is_alphabetic) && !text.starts_with('-')
}

fn collect(tokens: TokenStream, kind: Kind, texts: &mut Vec<(Kind, String)>) {
    let tokens: Vec<_> = tokens.into_iter().collect();
    let mut of_test = false;
    let mut here = kind;
    for (at, token) in tokens.iter().enumerate() {
        let before = |n: usize| at.checked_sub(n).map(|at| tokens[at].to_string());
        match token {
            // An attribute, a documentation comment among them.
            TokenTree::Group(group)
                if group.delimiter() == Delimiter::Bracket
                    && matches!(before(1).as_deref(), Some("#" | "!"))
                    && (before(1).as_deref() == Some("#") || before(2).as_deref() == Some("#")) =>
            {
                of_test |= group.to_string().replace(' ', "") == "[cfg(test)]";
            }
            TokenTree::Group(group) => {
                let ends_item = group.delimiter() == Delimiter::Brace;
                if !of_test && !is_assertion(&tokens[..at]) {
                    let hint = is_hint(&tokens[..at]).then_some(Kind::Hint);
                    let kind = hint.unwrap_or(here);
                    match takes_a_hint(&tokens[..at]) {
                        true => collect_with_hint(group.stream(), texts),
                        false => collect(group.stream(), kind, texts),
                    }
                }
                of_test &= !ends_item;
            }
            TokenTree::Punct(punct) if punct.as_char() == ';' => {
                of_test = false;
                here = kind;
            }
            TokenTree::Literal(literal) if !of_test => {
                if let Ok(text) = syn::parse_str::<syn::LitStr>(&literal.to_string()) {
                    let hint = names_hint(&tokens[..at]).then_some(Kind::Hint);
                    texts.push((hint.unwrap_or(here), text.value()));
                }
            }
            _ => {}
        }
    }
}

/// `assert!(…)` and its like, which say what cannot happen.
fn is_assertion(before: &[TokenTree]) -> bool {
    let [.., TokenTree::Ident(name), TokenTree::Punct(bang)] = before else {
        return false;
    };
    let names = "assert debug_assert assert_eq debug_assert_eq unreachable panic";
    bang.as_char() == '!' && names.split(' ').any(|it| name == it)
}

/// `.hint(…)`, `with_hint(…)`, and the body of a function `hint`.
fn is_hint(before: &[TokenTree]) -> bool {
    match before {
        [.., TokenTree::Ident(name)] => name == "hint" || name == "with_hint",
        _ => {
            let body = before.iter().rposition(|token| token.to_string() == "fn");
            let name = body.and_then(|at| before.get(at + 1));
            let name = name.map(ToString::to_string);
            let ended = body.is_some_and(|at| {
                before[at..].iter().any(|token| {
                    matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace)
                })
            });
            name.as_deref() == Some("hint") && !ended
        }
    }
}

/// `hint: "…"` and `let hint = "…"`.
fn names_hint(before: &[TokenTree]) -> bool {
    matches!(before, [.., TokenTree::Ident(name), TokenTree::Punct(_)] if name == "hint")
}

/// `Invalid::new(what, hint)`, `refused(what, hint)` and their like.
fn takes_a_hint(before: &[TokenTree]) -> bool {
    let mut names = before.iter().rev().map(ToString::to_string);
    let name = names.next();
    match name.as_deref() {
        Some("warn_with_hint" | "refused" | "corrupt" | "unsupported") => true,
        Some("new") => names.take(3).eq([":", ":", "Invalid"]),
        _ => false,
    }
}

fn collect_with_hint(tokens: TokenStream, texts: &mut Vec<(Kind, String)>) {
    let tokens: Vec<_> = tokens.into_iter().collect();
    let comma = |token: &TokenTree| matches!(token, TokenTree::Punct(it) if it.as_char() == ',');
    let mut kind = Kind::Sentence;
    for part in tokens.split(comma).filter(|part| !part.is_empty()) {
        collect(part.iter().cloned().collect(), kind, texts);
        kind = Kind::Hint;
    }
}
