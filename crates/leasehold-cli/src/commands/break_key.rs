//! `leasehold break`: the administrator's verb.

use leasehold::{Broken, Key, Token};
use serde::Serialize;

use crate::cli::BreakArgs;
use crate::connect::connect;
use crate::exit;
use crate::failure::Failure;
use crate::output::Printer;
use crate::view::{KeyView, held_by};

/// What `--json` prints.
#[derive(Serialize)]
struct Done<'a> {
    key: &'a str,
    holders: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<u64>,
}

/// Takes the key from its holders, after asking.
pub(crate) async fn break_key(args: &BreakArgs, printer: &Printer) -> Result<u8, Failure> {
    let key = &*args.key;
    Key::new(key)?;
    let client = connect(&args.common.store).await?;
    if !args.yes {
        let seen = KeyView::from(&client.inspect(key).await?);
        let Some(question) = question(&seen) else {
            printer.notice(&format!("nobody holds {key}"));
            return Ok(exit::OK);
        };
        if !confirmed(&question, printer)? {
            return Ok(exit::DECLINED);
        }
    }
    let broken = client.break_key(key).await?;
    let done = Done {
        key,
        holders: broken.holders,
        token: broken.token.some().map(Token::get),
    };
    printer.done(&done, &outcome(key, &broken))?;
    Ok(exit::OK)
}

/// What is asked before, with the key and its holders; `None` if nobody holds it.
pub(super) fn question(seen: &KeyView) -> Option<String> {
    let held = held_by(&seen.holders)?;
    Some(format!("{} is {held}. Break it?", seen.key))
}

/// What was done.
pub(super) fn outcome(key: &str, broken: &Broken) -> String {
    match (broken.holders, broken.token.some()) {
        (0, _) => format!("nobody held {key}"),
        (_, Some(token)) => {
            let whom = match broken.holders {
                1 => "its holder".to_owned(),
                holders => format!("its {holders} holders"),
            };
            format!(
                "broke {key}, taken from {whom}: tokens up to {token} are void; the next one is higher"
            )
        }
        (_, None) => format!(
            "broke {key}: its holder is not fenced, and learns of it when it next renews or releases"
        ),
    }
}

fn confirmed(question: &str, printer: &Printer) -> Result<bool, Failure> {
    let answer = printer
        .ask(question)
        .map_err(|error| Failure::new(exit::OUTPUT, format!("cannot ask: {error}")))?;
    match answer.as_deref() {
        Some(answer) => Ok(matches!(answer, "y" | "yes")),
        None => {
            Err(Failure::usage("not a terminal: cannot ask for confirmation").hint("use --yes"))
        }
    }
}
