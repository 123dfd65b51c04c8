//! The model and the view, on locks that are made up.

use std::fs::File;
use std::io::Read;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::time::Duration;

use crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers};
use leasehold::Error;
use leasehold_testkit::expect::says;
use ratatui::backend::TestBackend;
use ratatui::buffer::{Buffer, Cell};
use ratatui::style::{Color, Style};
use ratatui::{Frame, Terminal};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::tcgetattr;
use tokio::sync::watch;
use tokio::time::Instant;

use super::keys::Action;
use super::model::{Model, Overlay};
use super::{Screen, TopOptions, break_key, view};
use crate::deadlocks::DeadlockView;
use crate::histories::History;
use crate::history::EntryView;
use crate::lock_table::tests::{at, held, pass as updates};
use crate::lock_table::{Lock, Update};
use crate::view::KeyView;

/// A model with these locks, as after a pass.
fn model(locks: Vec<KeyView>) -> Model {
    let mut model = Model::new("*");
    pass(&mut model, locks, at(0));
    model
}

fn pass(model: &mut Model, locks: Vec<KeyView>, now: Instant) {
    for update in updates(locks) {
        model.take(update, now).unwrap();
    }
}

fn typed(model: &mut Model, keys: &str) -> Option<Action> {
    let mut last = None;
    for key in keys.chars() {
        let code = match key {
            '\n' => KeyCode::Enter,
            '\u{1b}' => KeyCode::Esc,
            '\u{8}' => KeyCode::Backspace,
            '↓' => KeyCode::Down,
            '↑' => KeyCode::Up,
            '⇟' => KeyCode::PageDown,
            '⇱' => KeyCode::Home,
            c => KeyCode::Char(c),
        };
        last = model.typed(&Event::Key(code.into()), at(1));
    }
    last
}

/// The model once that was typed.
fn after(mut model: Model, keys: &str) -> Model {
    model.arrange(9, at(0));
    typed(&mut model, keys);
    model
}

/// This lock was looked at by itself.
fn look(model: &mut Model, lock: KeyView, now: u64) {
    model.take(Update::Shown(vec![lock]), at(now)).unwrap();
}

/// That key, and what the audit log says of it.
fn known(key: &str, entries: Vec<EntryView>) -> Option<(String, watch::Receiver<History>)> {
    let (_, known) = watch::channel(Some(Ok(entries)));
    Some((key.to_owned(), known))
}

/// The keys on the screen, the chosen one in brackets.
fn keys(model: &mut Model, height: usize) -> Vec<String> {
    model.arrange(height, at(1));
    let key = |(lock, chosen): (&Lock, bool)| match chosen {
        true => format!("[{}]", lock.view.key),
        false => lock.view.key.clone(),
    };
    model.lines().map(key).collect()
}

// ---- the model ----

#[test]
fn sorted_by_waiters_age_or_rate() {
    let mut old = held("old", 1, 0);
    old.holders[0].since = Some("2026-01-31T11:00:00Z".parse().unwrap());
    let mut free = held("unheld", 2, 1);
    free.holders.clear();
    let (busy, b) = (held("busy", 3, 2), held("b", 4, 0));
    let mut model = model(vec![old.clone(), free.clone(), busy, b]);
    assert_eq!(keys(&mut model, 9), ["[busy]", "unheld", "b", "old"]);
    typed(&mut model, "a");
    assert_eq!(keys(&mut model, 9), ["[old]", "b", "busy", "unheld"]);
    typed(&mut model, "r");
    let now = vec![old, free, held("busy", 3, 2), held("b", 5, 0)];
    pass(&mut model, now, at(1));
    assert_eq!(keys(&mut model, 9), ["[b]", "busy", "old", "unheld"]);
    typed(&mut model, "w");
    assert_eq!(keys(&mut model, 9), ["[busy]", "unheld", "b", "old"]);
}

#[test]
fn the_first_line_is_chosen_until_somebody_moves_and_then_a_key() {
    let mut model = model(vec![held("a", 1, 2), held("b", 2, 1)]);
    assert_eq!(keys(&mut model, 9), ["[a]", "b"]);
    pass(&mut model, vec![held("a", 1, 2), held("b", 2, 3)], at(1));
    assert_eq!(keys(&mut model, 9), ["[b]", "a"]);
    typed(&mut model, "↓");
    assert_eq!(keys(&mut model, 9), ["b", "[a]"]);
    pass(&mut model, vec![held("a", 1, 4), held("b", 2, 3)], at(2));
    assert_eq!(keys(&mut model, 9), ["[a]", "b"]);
    // It is gone: the next one in its place.
    pass(&mut model, vec![held("b", 2, 3), held("c", 3, 1)], at(3));
    assert_eq!(keys(&mut model, 9), ["[b]", "c"]);
    pass(&mut model, vec![], at(4));
    assert!(keys(&mut model, 9).is_empty());
    assert_eq!(typed(&mut model, "\nb"), None);
}

#[test]
fn the_chosen_line_stays_on_the_screen() {
    let mut model = model((0..10).map(|n| held(&format!("k{n}"), n + 1, 0)).collect());
    assert_eq!(keys(&mut model, 3), ["[k0]", "k1", "k2"]);
    typed(&mut model, "↓↓↓");
    assert_eq!(keys(&mut model, 3), ["k1", "k2", "[k3]"]);
    typed(&mut model, "⇟");
    assert_eq!(keys(&mut model, 3), ["k4", "k5", "[k6]"]);
    typed(&mut model, "⇟⇟⇟↑");
    assert_eq!(keys(&mut model, 3), ["k6", "k7", "[k8]"]);
    assert_eq!(keys(&mut model, 20)[8..], ["[k8]", "k9"]);
    assert_eq!(keys(&mut model, 1), ["[k8]"]);
    typed(&mut model, "⇱");
    assert_eq!(keys(&mut model, 0), ["[k0]"]);
}

#[test]
fn what_a_pass_does_not_find_is_gone() {
    let mut model = model(vec![held("a", 1, 0), held("b", 2, 0), held("c", 3, 0)]);
    model.take(Update::Began, at(1)).unwrap();
    let page = Update::Page(vec![held("a", 1, 0)], vec![]);
    model.take(page, at(1)).unwrap();
    assert_eq!(keys(&mut model, 9), ["[a]", "b", "c"]);
    // Looked at by itself meanwhile, and still there.
    look(&mut model, held("b", 2, 0), 2);
    model.take(Update::Ended(vec![]), at(2)).unwrap();
    assert_eq!(keys(&mut model, 9), ["[a]", "b"]);
    let free = KeyView {
        holders: vec![],
        ..held("b", 2, 0)
    };
    look(&mut model, free, 3);
    assert_eq!(keys(&mut model, 9), ["[a]"]);
}

#[test]
fn a_filter_is_typed_and_begins_anew() {
    let mut model = model(vec![held("a", 1, 0)]);
    typed(&mut model, "/orders/q*");
    assert_eq!(model.pattern, "*");
    typed(&mut model, "\u{1b}");
    assert_eq!(model.pattern, "*");
    let read = typed(&mut model, "/ordr\u{8}ers/*\n");
    assert_eq!((&*model.pattern, read), ("orders/*", Some(Action::Read)));
    assert!(keys(&mut model, 9).is_empty() && !model.table.complete);
    // Without a pattern it is a part of the key, and can be changed as it was typed.
    let delete = "\u{8}".repeat(8);
    typed(&mut model, &format!("/{delete}deploy\n"));
    assert_eq!(model.pattern, "*deploy*");
    typed(&mut model, "/ed\n");
    assert_eq!(model.pattern, "*deployed*");
    typed(&mut model, &format!("/{delete}\n/deploy\n"));
    assert_eq!(model.pattern, "*deploy*");
    typed(&mut model, &format!("/{delete}orders/*\n"));
    typed(&mut model, "/");
    model.typed(&Event::Paste("2".to_owned()), at(1));
    typed(&mut model, "\n");
    assert_eq!(model.pattern, "orders/*2");
    typed(&mut model, &format!("/{}\n", "\u{8}".repeat(10)));
    assert_eq!(model.pattern, "*");
}

#[test]
fn what_is_shown_is_what_needs_details() {
    let mut model = model(vec![held("a", 1, 1), held("b", 2, 0), held("c", 3, 0)]);
    model.arrange(2, at(0));
    assert_eq!(model.shown(), ["a", "b"]);
    typed(&mut model, "\n");
    assert_eq!(model.shown(), ["a"]);
    typed(&mut model, "\u{1b}");
    assert_eq!(model.shown(), ["a", "b"]);
    // What cannot be read only passes look at.
    let damaged = vec![("a".to_owned(), "damaged".to_owned())];
    for update in [Update::Page(vec![], damaged), Update::Ended(vec![])] {
        model.take(update, at(1)).unwrap();
    }
    model.details = Some(("a".to_owned(), 0));
    assert_eq!(model.shown(), [""; 0]);
}

#[test]
fn a_lock_is_broken_only_after_a_yes() {
    let mut model = model(vec![held("k", 7, 0)]);
    model.arrange(9, at(0));
    for no in ["n", "\n", "\u{1b}", "b", "q"] {
        typed(&mut model, "b");
        assert!(matches!(&model.over, Some(Overlay::Confirm(asked)) if asked.key == "k"));
        assert_eq!(typed(&mut model, no), None, "{no:?}");
        assert_eq!(model.over, None, "{no:?}");
    }
    // Text that is pasted is no answer, and no command.
    typed(&mut model, "b");
    assert_eq!(model.typed(&Event::Paste("y".to_owned()), at(1)), None);
    let broken = typed(&mut model, "y");
    assert_eq!(broken, Some(Action::Break(Box::new(held("k", 7, 0)))));
    model.typed(&Event::Paste("by".to_owned()), at(1));
    assert_eq!(model.over, None);
}

#[test]
fn the_question_goes_when_the_holder_has_changed() {
    let mut model = after(model(vec![held("k", 7, 1)]), "b");
    let mut renewed = held("k", 7, 2);
    renewed.holders[0].expires_in_ms = Some(1);
    renewed.holders[0].note = Some("busy".to_owned());
    look(&mut model, renewed, 1);
    assert!(model.over.is_some());
    look(&mut model, held("k", 8, 0), 1);
    assert_eq!(model.over, None);
    assert_eq!(typed(&mut model, "y"), None);
}

#[test]
fn keys_with_control_quit_and_suspend_everywhere() {
    let mut model = model(vec![held("k", 7, 1)]);
    for before in ["", "/", "?", "b", "\n"] {
        typed(&mut model, before);
        for (key, action) in [('c', Action::Quit), ('z', Action::Suspend)] {
            let key = KeyEvent::new(KeyCode::Char(key), KeyModifiers::CONTROL);
            assert_eq!(model.typed(&Event::Key(key), at(1)), Some(action));
        }
    }
    typed(&mut model, "\u{1b}");
    assert_eq!(typed(&mut model, "q"), Some(Action::Quit));
}

/// No store is there.
async fn no_answer() -> Error {
    let url = "redis://127.0.0.1:1/";
    leasehold::connect(url).await.unwrap_err()
}

#[tokio::test]
async fn a_store_that_refuses_from_the_beginning_ends_it_and_later_does_not() {
    let refused = leasehold::connect("no-store:").await.unwrap_err();
    let refused = || Update::Failed(refused.clone());
    let mut model = Model::new("*");
    let silent = Update::Failed(no_answer().await);
    model.take(silent, at(0)).unwrap();
    assert!(model.table.failure.is_some());
    assert!(model.take(refused(), at(0)).is_err());
    pass(&mut model, vec![held("k", 1, 0)], at(1));
    assert!(model.table.failure.is_none());
    model.take(refused(), at(2)).unwrap();
    assert_eq!(model.table.data_age(at(5)), Some(Duration::from_secs(4)));
}

// ---- the view ----

const SIZES: [(u16, u16); 3] = [(80, 24), (40, 12), (120, 40)];

fn screen(model: &mut Model, (width, height): (u16, u16), colour: bool, now: u64) -> Buffer {
    let options = TopOptions {
        store: "redis://db1/".to_owned(),
        pattern: "*".to_owned(),
        colour,
        interval: Duration::from_secs(1),
    };
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let draw = |frame: &mut Frame<'_>| view::draw(model, &options, at(now), frame);
    terminal.draw(draw).unwrap();
    terminal.backend().buffer().clone()
}

/// The lines of a screen, without the space at their ends and empty lines between.
fn lines(buffer: &Buffer) -> Vec<String> {
    let cells = buffer.content.chunks(buffer.area.width.into());
    let text = cells.map(|line| line.iter().map(|cell| cell.symbol()).collect::<String>());
    let lines = text.map(|line| line.trim_end().to_owned());
    lines.filter(|line| !line.is_empty()).collect()
}

/// Expects this of each size of a screen.
#[track_caller]
fn on_three_screens(shown: impl Fn((u16, u16)) -> Vec<String>, expected: [&[&str]; 3]) {
    for (size, expected) in SIZES.into_iter().zip(expected) {
        assert_eq!(shown(size), expected, "{size:?}");
    }
}

/// The place of the first line that begins so.
#[track_caller]
fn line_of(shown: &[String], begins: &str) -> usize {
    let place = shown.iter().position(|line| line.starts_with(begins));
    place.unwrap_or_else(|| panic!("no {begins:?}: {shown:#?}"))
}

fn busy() -> Model {
    let mut shared = held("config", 9, 0);
    shared.holders.push(shared.holders[0].clone());
    let mut kept = held("nightly-report-of-all-regions", 5, 0);
    kept.holders[0].kept_until = Some("2026-01-31T13:00:00Z".parse().unwrap());
    kept.holders[0].owner.as_mut().unwrap().label = None;
    let mut endless = held("other-library", 0, 0);
    endless.holders[0].expires_in_ms = None;
    endless.holders[0].since = None;
    model(vec![held("orders/42", 7, 12), shared, kept, endless])
}

#[test]
fn the_table_on_three_screens() {
    let table = |size| lines(&screen(&mut busy(), size, true, 12));
    on_three_screens(table, [TABLE_80, TABLE_40, TABLE_120]);
}

const TABLE_80: &[&str] = &[
    "4 locks, 12 waiting, by waiters                                     redis://db1/",
    "KEY                 HELD BY             HELD FOR    WAITING  LEASE       CHG/MIN",
    "orders/42           deploy              1 min 12 s  12       [|||||   ]  0.0",
    "config              deploy and 1 more   1 min 12 s  0        [|||||   ]  0.0",
    "nightly-report-of…  build7 (pid 812) …  1 min 12 s  0        [|||||   ]  0.0",
    "other-library       deploy                          0                    0.0",
    "q quit  ? help  Enter details  / filter  b break  w waiters  a age  r rate",
];
const TABLE_40: &[&str] = &[
    "4 locks, 12 waiting, by waiters",
    "KEY              HELD BY         WAITING",
    "orders/42        deploy          12",
    "config           deploy and 1 …  0",
    "nightly-report…  build7 (pid 8…  0",
    "other-library    deploy          0",
    "q quit  ? help  Enter details  / filter",
];
const TABLE_120: &[&str] = &[
    "4 locks, 12 waiting, by waiters                                                                             redis://db1/",
    "KEY                            HELD BY                      HELD FOR    WAITING  LEASE       EXPIRES IN  CHG/MIN",
    "orders/42                      deploy                       1 min 12 s  12       [|||||   ]  18 s        0.0",
    "config                         deploy and 1 more            1 min 12 s  0        [|||||   ]  18 s        0.0",
    "nightly-report-of-all-regions  build7 (pid 812) (finished)  1 min 12 s  0        [|||||   ]  18 s        0.0",
    "other-library                  deploy                                   0                    never       0.0",
    "q quit  ? help  Enter details  / filter  b break  w waiters  a age  r rate",
];

#[test]
fn details_on_three_screens() {
    let details = |size| {
        let mut model = after(model(vec![held("orders/42", 7, 3)]), "\n");
        lines(&screen(&mut model, size, true, 12))
    };
    on_three_screens(details, [DETAILS_80, DETAILS_40, DETAILS_120]);
}

#[test]
fn at_40_columns_key_holder_and_waiting_are_there() {
    for (sort, column) in [("w", "WAITING"), ("a", "HELD FOR"), ("r", "CHG/MIN")] {
        let mut model = model(crate::tables::tests::long());
        typed(&mut model, sort);
        let shown = lines(&screen(&mut model, (40, 12), true, 3_600)).join("\n");
        says(&shown, ["KEY", "HELD BY", "WAITING", column]);
        says(&shown, ["a-pool/", "3/3 ", "1234", "…"]);
        typed(&mut model, "w");
        let mut model = after(model, "\n");
        let shown = lines(&screen(&mut model, (40, 12), true, 0)).join("\n");
        says(&shown, ["a-pool/", "holds ", "waits, 1", "812", "a-label"]);
    }
}

#[test]
fn what_is_said_covers_nothing() {
    let locks = (0..20).map(|n| held(&format!("k{n:02}"), n + 1, 3));
    let mut model = model(locks.collect());
    let said = "a (pid 1 on build7) holds k00 and waits for k01; ".repeat(4);
    let found = Update::Ended(vec![DeadlockView::saying(&said)]);
    model.take(found, at(1)).unwrap();
    model.history = known("k00", crate::history::tests::entries());
    for size in SIZES {
        model.details = None;
        let shown = lines(&screen(&mut model, size, true, 2));
        let rows = shown.iter().filter(|line| line.starts_with('k')).count();
        assert_eq!(model.shown().len(), rows, "{shown:#?}");
        typed(&mut model, "w\n");
        let shown = lines(&screen(&mut model, size, true, 2));
        let history = line_of(&shown, "history,");
        assert!(history + 1 < line_of(&shown, "deadlock: "), "{shown:#?}");
        assert!(line_of(&shown, "waits, ") < history, "{shown:#?}");
    }
}

#[test]
fn details_have_the_history_of_the_key() {
    let heading = "history, the newest first".to_owned();
    let mut model = after(model(vec![held("orders/42", 7, 3)]), "\n");
    let entries = crate::history::tests::entries();
    let newest = entries[0].without_key();
    model.history = known("orders/42", entries);
    for size in SIZES {
        let shown = lines(&screen(&mut model, size, true, 12));
        let at = shown.iter().position(|line| *line == heading);
        let line = &shown[at.expect("a heading") + 1];
        let begins: String = newest.chars().take(38).collect();
        assert!(line.starts_with(&begins), "{shown:?}");
        line_of(&shown, "holds ");
    }
    pass(&mut model, vec![], at(20));
    let shown = lines(&screen(&mut model, SIZES[0], true, 21));
    assert!(shown.contains(&"orders/42: free".to_owned()), "{shown:?}");
    assert!(shown.contains(&heading), "{shown:?}");
    let damaged = vec![("orders/42".to_owned(), "it is damaged".to_owned())];
    for update in [Update::Page(vec![], damaged), Update::Ended(vec![])] {
        model.take(update, at(22)).unwrap();
    }
    let shown = lines(&screen(&mut model, SIZES[0], true, 22));
    let unread = "orders/42 cannot be read: it is damaged".to_owned();
    assert!(shown.contains(&unread), "{shown:?}");
    typed(&mut model, "b");
    assert_eq!(model.notice(at(1)), Some(&*unread));
    // That of another key is not shown.
    model.history = known("other", vec![]);
    let shown = lines(&screen(&mut model, SIZES[0], true, 21));
    let is_shown = shown.iter().any(|line| line.starts_with("history"));
    assert!(!is_shown, "{shown:?}");
}

#[test]
fn deadlocks_stand_in_the_status() {
    let mut model = model(vec![held("x", 7, 1)]);
    let found = |count: usize| {
        let deadlock = DeadlockView::saying("a holds x and waits for y");
        Update::Ended(vec![deadlock; count])
    };
    for (count, says) in [
        (1, "deadlock: a holds x and waits for y"),
        (2, "2 deadlocks, such as: a holds x and waits"),
    ] {
        model.take(found(count), at(1)).unwrap();
        for size in SIZES {
            let shown = lines(&screen(&mut model, size, true, 2)).join(" ");
            assert!(shown.contains(says), "{shown}");
        }
    }
    model.take(found(0), at(1)).unwrap();
    assert_eq!(model.deadlock(), None);
}

const DETAILS_80: &[&str] = &[
    "1 lock, 3 waiting, by waiters                                       redis://db1/",
    "orders/42: lock, token 7",
    "STATE     HOST    PID  LABEL   SINCE                 EXPIRES IN  TOKEN",
    "holds     build7  812  deploy  2026-01-31T12:00:00Z  18 s        7",
    "waits, 1  build7  812          2026-01-31T12:00:00Z  18 s",
    "waits, 2  build7  812          2026-01-31T12:00:00Z  18 s",
    "waits, 3  build7  812          2026-01-31T12:00:00Z  18 s",
    "q quit  ? help  Esc back  b break",
];
const DETAILS_40: &[&str] = &[
    "1 lock, 3 waiting, by waiters",
    "orders/42: lock, token 7",
    "STATE     HOST    PID  LABEL   TOKEN",
    "holds     build7  812  deploy  7",
    "waits, 1  build7  812",
    "waits, 2  build7  812",
    "waits, 3  build7  812",
    "q quit  ? help  Esc back  b break",
];
const DETAILS_120: &[&str] = &[
    "1 lock, 3 waiting, by waiters                                                                               redis://db1/",
    "orders/42: lock, token 7",
    "STATE     MODE       HOST    PID  LABEL   SINCE                 EXPIRES IN  TOKEN",
    "holds     exclusive  build7  812  deploy  2026-01-31T12:00:00Z  18 s        7",
    "waits, 1  exclusive  build7  812          2026-01-31T12:00:00Z  18 s",
    "waits, 2  exclusive  build7  812          2026-01-31T12:00:00Z  18 s",
    "waits, 3  exclusive  build7  812          2026-01-31T12:00:00Z  18 s",
    "q quit  ? help  Esc back  b break",
];

#[test]
fn the_question_names_key_and_holder_on_three_screens() {
    let asked = |size| {
        let mut model = after(model(vec![held("orders/42", 7, 3)]), "b");
        lines(&screen(&mut model, size, true, 0))[2..].to_vec()
    };
    on_three_screens(asked, [ASKED_80, ASKED_40, ASKED_120]);
}

const ASKED_80: &[&str] = &[
    "orders/42  deploy   1 min     3        [||||||||]  30 s        0.0",
    "orders/42 is held by build7 (pid 812, label deploy) for 1 min; free in 30 s",
    "unless renewed. Break it?",
    "y break it  n do not",
];
const ASKED_40: &[&str] = &[
    "orders/42  deploy   3        [||||||||]",
    "orders/42 is held by build7 (pid 812,",
    "label deploy) for 1 min; free in 30 s",
    "unless renewed. Break it?",
    "y break it  n do not",
];
const ASKED_120: &[&str] = &[
    "orders/42  deploy   1 min     3        [||||||||]  30 s        0.0",
    "orders/42 is held by build7 (pid 812, label deploy) for 1 min; free in 30 s unless renewed. Break it?",
    "y break it  n do not",
];

#[test]
fn help_has_room_on_the_smallest_screen() {
    let mut model = busy();
    typed(&mut model, "?");
    let lines = lines(&screen(&mut model, (40, 12), true, 0));
    let last = "CHG/MIN  holder changes seen, a minute";
    assert!(lines.iter().any(|line| line == last), "{lines:?}");
    assert_eq!(lines.last().unwrap(), "Esc back");
    assert_eq!(typed(&mut model, "q"), None, "any key leads back");
    assert_eq!(model.over, None);
}

#[test]
fn colours_are_a_choice_and_nothing_else_differs() {
    for size in SIZES {
        for keys in ["", "\n", "b", "?", "/"] {
            let shown = |colour| screen(&mut after(busy(), keys), size, colour, 12);
            let mut shown = [true, false].map(shown);
            let coloured = |buffer: &Buffer| {
                let plain = |cell: &Cell| cell.fg == Color::Reset && cell.bg == Color::Reset;
                !buffer.content.iter().all(plain)
            };
            assert!(!coloured(&shown[1]), "{keys:?}");
            // The bars and the headings of the details; a narrow table has no bars.
            let has_room = size.0 > 40 || matches!(keys, "\n" | "b");
            assert_eq!(coloured(&shown[0]), has_room && keys != "?", "{keys:?}");
            let all = shown[0].area;
            shown[0].set_style(all, Style::new().fg(Color::Reset));
            assert_eq!(shown[0], shown[1]);
        }
    }
}

#[test]
fn text_of_others_is_harmless() {
    let mut evil = held("k\u{1b}[2J\u{202e}", 7, 1);
    let owner = evil.holders[0].owner.as_mut().unwrap();
    owner.label = Some("\u{1b}]0;x\u{7}\n".to_owned());
    owner.host = "h\u{9b}2J".to_owned();
    evil.holders[0].note = Some("\u{200b}\r".to_owned());
    for size in SIZES {
        for keys in ["", "\n", "b", "/\u{202e}\u{1b}[2J"] {
            let mut model = after(model(vec![evil.clone()]), keys);
            let buffer = screen(&mut model, size, true, 0);
            let shown: String = buffer.content.iter().map(Cell::symbol).collect();
            let harmful = |c: char| c.is_control() || "\u{202e}\u{200b}".contains(c);
            assert!(!shown.contains(harmful), "{shown:?}");
        }
    }
    let mut model = model(vec![evil]);
    let shown = lines(&screen(&mut model, (120, 40), true, 0)).join("\n");
    says(&shown, [r"k\u{1b}[2J\u{202e}  \u{1b}]0;x\u{7}\n"]);
}

#[tokio::test]
async fn the_state_of_the_store_is_said() {
    let said = |model: &mut Model, now| {
        // In one line, whatever the system says of a connection.
        let lines = lines(&screen(model, (160, 24), true, now));
        lines[lines.len() - 2].clone()
    };
    assert_eq!(said(&mut Model::new("*"), 0), "reading");
    assert_eq!(said(&mut model(vec![]), 0), "no locks");
    let mut quiet = model(vec![held("k", 1, 0)]);
    quiet.take(Update::Asked, at(10)).unwrap();
    let silent = "this is 13 s old: the store has not answered for 3 s";
    assert_eq!(said(&mut quiet, 13), silent);
    let why = no_answer().await;
    quiet.take(Update::Failed(why.clone()), at(15)).unwrap();
    let failed = format!("this is 15 s old: {why}; trying again");
    assert_eq!(said(&mut quiet, 15), failed);
    let mut unread = Model::new("orders/");
    pass(&mut unread, vec![], at(0));
    let hint = "no lock orders/; for all that begin so: orders/*";
    assert_eq!(said(&mut unread, 0), hint);
    let mut slow = model(vec![held("k", 1, 0)]);
    pass(&mut slow, vec![held("k", 1, 0)], at(4));
    let periods = "these are read every 1.0 s, all locks every 4.0 s";
    assert_eq!(said(&mut slow, 4), periods);
    slow.tell("broke k".to_owned(), at(4));
    assert_eq!(said(&mut slow, 5), "broke k");
    let damaged = ["a", "b"].map(|key| (key.to_owned(), "damaged".to_owned()));
    let page = Update::Page(vec![], damaged.to_vec());
    slow.take(page, at(20)).unwrap();
    slow.take(Update::Ended(vec![]), at(20)).unwrap();
    let unreadable = "2 cannot be read: leasehold ls names them";
    assert_eq!(said(&mut slow, 20), unreadable);
}

#[test]
fn no_screen_is_too_small() {
    for width in 0..30 {
        for height in 0..8 {
            for keys in ["", "\n", "b", "?", "/abc"] {
                screen(&mut after(busy(), keys), (width, height), true, 0);
            }
        }
    }
}

#[test]
fn ten_thousand_locks_are_drawn_from_memory() {
    let locks = (0..10_000).map(|n| held(&format!("k/{n}"), n, n % 2));
    let mut model = model(locks.collect());
    let lines = lines(&screen(&mut model, (80, 24), true, 0));
    let heading = "10000 locks, 5000 waiting, by waiters";
    assert!(lines[0].starts_with(heading), "{lines:?}");
    assert_eq!(model.shown().len(), 20);
}

/// Between the answer to the question and the break another may have been granted the key.
#[tokio::test]
async fn a_lock_that_another_holds_by_now_is_not_broken() {
    let client = leasehold::connect("memory:").await.unwrap();
    let lock = client.mutex("k").unwrap();
    let look = async || KeyView::from(&client.inspect("k").await.unwrap());
    let first = lock.lock().await.unwrap();
    let asked = look().await;
    let _ = first.release().await.unwrap();
    let second = lock.lock().await.unwrap();
    let told = break_key(client.clone(), Box::new(asked)).await;
    let refused = "nothing was broken: now k is held by";
    assert!(told.starts_with(refused), "{told}");
    second.renew().await.expect("it holds");
    let told = break_key(client.clone(), Box::new(look().await)).await;
    assert!(told.starts_with("broke k"), "{told}");
    second.lost().await;
}

// ---- the terminal ----

/// Not a test by itself: enters the screen of another test's terminal, and leaves it as it says.
#[test]
fn at_a_terminal() {
    let panics = || assert!(catch_unwind(AssertUnwindSafe(|| panic!("as a test"))).is_err());
    let enter = || Screen::enter().unwrap();
    match std::env::var("LEASEHOLD_TEST_SCREEN").as_deref() {
        Ok("ends") => drop(enter()),
        Ok("is suspended and ends") => {
            drop(enter());
            drop(enter());
        }
        Ok("panics") => {
            let mut screen = enter();
            screen.draw(|_| {}).unwrap();
            panics();
            // The process goes on, as after a panic of a task: nothing is drawn any more.
            assert!(screen.draw(|_| {}).is_err());
        }
        Ok("is suspended and panics") => {
            drop(enter());
            let _screen = enter();
            panics();
        }
        _ => {}
    }
}

/// What was written to a terminal on which that happens; its modes are as before.
fn written(what: &str) -> String {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
    let open = || File::options().read(true).write(true).open(&name).unwrap();
    let before = format!("{:?}", tcgetattr(&master).unwrap());
    let mut this = Command::new(std::env::current_exe().unwrap());
    this.args(["--exact", "top::tests::at_a_terminal", "--nocapture"]);
    this.env("LEASEHOLD_TEST_SCREEN", what);
    this.stdin(open()).stdout(open()).stderr(open());
    let mut at = this.spawn().unwrap();
    drop(this);
    let mut written = Vec::new();
    let mut buffer = [0; 1024];
    let mut reader = File::from(master.try_clone().unwrap());
    // Ends with an error when nobody has the terminal any more.
    while let Ok(count @ 1..) = reader.read(&mut buffer) {
        written.extend_from_slice(&buffer[..count]);
    }
    let written = String::from_utf8(written).unwrap();
    assert!(at.wait().unwrap().success(), "{written}");
    let after = format!("{:?}", tcgetattr(&master).unwrap());
    assert_eq!(after, before, "{what}");
    written
}

#[test]
fn the_terminal_is_left_once_and_as_it_was() {
    const LEFT: &str = "\x1b[?2004l\x1b[?1049l\x1b[?25h";
    for (what, times) in [
        ("ends", 1),
        ("is suspended and ends", 2),
        ("panics", 1),
        ("is suspended and panics", 2),
    ] {
        let left = written(what);
        for once in ["\x1b[?1049h", "\x1b[?2004h", "\x1b[?1049l", LEFT] {
            assert_eq!(left.matches(once).count(), times, "{what}: {left:?}");
        }
        let (_, after) = left.rsplit_once(LEFT).unwrap();
        assert!(!after.contains("\x1b[?25l"), "{what}: {left:?}");
        let panics = what.ends_with("panics");
        assert_eq!(after.contains("as a test"), panics, "{after:?}");
        assert_eq!(left.matches("as a test").count(), usize::from(panics));
    }
}
