//! `leasehold break`: the administrator's verb.

use leasehold::{Key, Token};
use leasehold_console::breaking::{break_seen, outcome, question};
use serde::Serialize;

use crate::args::BreakArgs;
use crate::connect::connect;
use crate::exit;
use crate::failure::Failure;
use crate::output::Printer;
use crate::view::KeyView;

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
    let token = args.token.map(Token);
    let broken = if args.yes {
        match token {
            Some(token) => client.break_grant(key, token).await?,
            None => client.break_key(key).await?,
        }
    } else {
        let seen = KeyView::from(&client.inspect(key).await?);
        let named = |token| {
            seen.holders
                .iter()
                .any(|holder| holder.token == Some(token))
        };
        let Some(question) = question(&seen).filter(|_| args.token.is_none_or(named)) else {
            return nobody(args, printer);
        };
        if !confirmed(&question, printer)? {
            return Ok(exit::DECLINED);
        }
        break_seen(&client, &seen, token).await?
    };
    if broken.holders == 0 {
        return nobody(args, printer);
    }
    let done = Done {
        key,
        holders: broken.holders,
        token: broken.token.some().map(Token::get),
    };
    printer.done(&done, &outcome(key, &broken))?;
    Ok(exit::OK)
}

/// Nobody holds the key, or not with this token: nothing was changed.
fn nobody(args: &BreakArgs, printer: &Printer) -> Result<u8, Failure> {
    let key = &*args.key;
    if key.contains(['*', '?', '[']) {
        let failure = Failure::usage(format!(
            "nobody holds {key}: break takes a key, not a pattern"
        ));
        return Err(failure.hint(format!("leasehold ls '{key}' lists the keys")));
    }
    let (status, said) = match args.token {
        Some(token) => (
            exit::DECLINED,
            format!("nothing was broken: nobody holds {key} with token {token}"),
        ),
        None => (exit::OK, format!("nobody holds {key}")),
    };
    let done = Done {
        key,
        holders: 0,
        token: None,
    };
    printer.done(&done, &said)?;
    Ok(status)
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
