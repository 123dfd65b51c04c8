//! What a server tells of itself: `INFO`, and settings in lines of a name, `=` and a value.

use leasehold::doctor::Finding;
use leasehold::fuzzing::redis;

use super::check_sentence;

pub(crate) fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let settings = text.lines().filter_map(|line| line.split_once('='));
    let settings: Vec<_> = settings.collect();
    let findings = redis::findings(&text, &settings);
    assert!(findings.len() <= 40 + text.lines().count() * 3);
    findings.iter().for_each(check);
}

/// What is found is said in sentences that do nothing to a terminal.
pub(crate) fn check(finding: &Finding) {
    // Two values of the server, each as long as it may be.
    check_sentence(&finding.found, 60);
    for sentence in [Some(&finding.consequence), finding.remedy.as_ref()] {
        let odd = sentence.is_some_and(|text| text.chars().any(char::is_control));
        assert!(!odd, "{sentence:?}");
    }
}
