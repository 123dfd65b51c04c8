//! What the keys do to the state of `top`.

use crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use tokio::time::Instant;

use super::model::{Model, Overlay};
use crate::lock_table::SortBy;
use crate::view::KeyView;

/// What a key asks for that is not done within the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    Quit,
    Suspend,
    /// Read the keys that match the pattern, which is another one now.
    Read,
    /// Break this key, if its holders are still these.
    Break(Box<KeyView>),
}

impl Model {
    /// Takes what was typed.
    pub(super) fn typed(&mut self, event: &Event, now: Instant) -> Option<Action> {
        match event {
            Event::Key(key) if key.kind != KeyEventKind::Release => self.key(*key, now),
            // What is pasted is text, and no command.
            Event::Paste(text) => {
                if let Some(Overlay::Filter(filter)) = &mut self.over {
                    filter.push_str(text.trim());
                }
                None
            }
            _ => None,
        }
    }

    fn key(&mut self, key: KeyEvent, now: Instant) -> Option<Action> {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => Some(Action::Quit),
                KeyCode::Char('z') => Some(Action::Suspend),
                _ => None,
            };
        }
        match self.over.take() {
            None => self.command(key.code, now),
            Some(Overlay::Help) => None,
            Some(Overlay::Filter(mut filter)) => {
                match key.code {
                    KeyCode::Esc => return None,
                    KeyCode::Enter => return self.filter(&pattern_of(&filter)),
                    KeyCode::Backspace => drop(filter.pop()),
                    KeyCode::Char(c) => filter.push(c),
                    _ => {}
                }
                self.over = Some(Overlay::Filter(filter));
                None
            }
            Some(Overlay::Confirm(view)) => match key.code {
                KeyCode::Char('y' | 'Y') => {
                    self.tell(format!("breaking {}", view.key), now);
                    Some(Action::Break(view))
                }
                _ => {
                    self.tell("nothing was broken".to_owned(), now);
                    None
                }
            },
        }
    }

    fn command(&mut self, code: KeyCode, now: Instant) -> Option<Action> {
        self.notice = None;
        match code {
            KeyCode::Char('q') => return Some(Action::Quit),
            KeyCode::Char('?' | 'h') => self.over = Some(Overlay::Help),
            KeyCode::Char('/') => {
                // What was typed for the pattern.
                let within = self.pattern.strip_prefix('*');
                let part = within.map(|rest| rest.strip_suffix('*').unwrap_or(rest));
                let part = part.filter(|part| pattern_of(part) == self.pattern);
                let typed = part.unwrap_or(&self.pattern).to_owned();
                self.over = Some(Overlay::Filter(typed));
            }
            KeyCode::Char('w') => self.sort_by(SortBy::Waiters),
            KeyCode::Char('a') => self.sort_by(SortBy::Age),
            KeyCode::Char('r') => self.sort_by(SortBy::Rate),
            KeyCode::Char('b') => self.ask_to_break(now),
            KeyCode::Up | KeyCode::Char('k') => self.go(|at, _| at.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => self.go(|at, _| at + 1),
            KeyCode::PageUp => self.go(|at, height| at.saturating_sub(height)),
            KeyCode::PageDown => self.go(|at, height| at + height),
            KeyCode::Home => self.go(|_, _| 0),
            KeyCode::End => self.go(|_, _| usize::MAX),
            KeyCode::Enter if self.details.is_some() => self.details = None,
            KeyCode::Enter | KeyCode::Right => {
                let key = self.order.get(self.at).cloned();
                self.chosen.clone_from(&key);
                self.details = self.details.take().or_else(|| Some((key?, 0)));
            }
            KeyCode::Esc | KeyCode::Left | KeyCode::Backspace => self.details = None,
            _ => {}
        }
        None
    }

    fn sort_by(&mut self, sort: SortBy) {
        (self.sort, self.details) = (sort, None);
        // The table is shown from its top again.
        (self.chosen, self.at, self.top) = (None, 0, 0);
    }

    /// Moves in the table, or through the claims of a key.
    fn go(&mut self, to: impl Fn(usize, usize) -> usize) {
        if let Some((key, first)) = &mut self.details {
            let view = self.table.lock(key).map(|lock| &lock.view);
            let claims = view.map_or(0, |view| view.holders.len() + view.waiters.len());
            *first = to(*first, self.height).min(claims.saturating_sub(1));
            return;
        }
        self.at = to(self.at, self.height).min(self.order.len().saturating_sub(1));
        self.chosen = self.order.get(self.at).cloned();
    }

    fn filter(&mut self, pattern: &str) -> Option<Action> {
        self.details = None;
        if pattern == self.pattern {
            return None;
        }
        pattern.clone_into(&mut self.pattern);
        self.table.clear();
        self.sort_by(self.sort);
        Some(Action::Read)
    }

    fn ask_to_break(&mut self, now: Instant) {
        let details = self.details.as_ref().map(|(key, _)| key);
        let Some(key) = details.or_else(|| self.order.get(self.at)) else {
            return;
        };
        match self.table.lock(key).map(|lock| &lock.view) {
            Some(view) if !view.holders.is_empty() => {
                self.over = Some(Overlay::Confirm(Box::new(view.clone())));
            }
            _ => {
                let why = self.table.unreadable.get(key);
                let free = || format!("nobody holds {key}");
                let text = why.map_or_else(free, |why| format!("{key} cannot be read: {why}"));
                self.tell(text, now);
            }
        }
    }
}

/// The keys that contain what was typed, unless that is a pattern.
fn pattern_of(typed: &str) -> String {
    match typed {
        "" => "*".to_owned(),
        pattern if pattern.contains(['*', '?', '[', '\\']) => pattern.to_owned(),
        part => format!("*{part}*"),
    }
}
