//! `leasehold break`: the administrator's verb.

use std::path::Path;

use leasehold::{Key, Token};
use leasehold_console::breaking::{break_if, outcome, question};

use crate::args::BreakArgs;
use crate::connect::connect;
use crate::exit;
use crate::failure::Failure;
use crate::output::{Fields, Printer};
use crate::user_file::quoted;
use crate::view::{KeyView, same_holders};

/// Takes the key from its holders, after asking.
pub(crate) async fn break_key(args: &BreakArgs, printer: &Printer) -> Result<u8, Failure> {
    let key = &*args.key;
    Key::new(key)?;
    let client = connect(&args.common.store.settings).await?;
    let token = args.token.map(Token::from);
    let (broken, said) = if args.yes {
        let broken = match token {
            Some(token) => client.break_grant(key, token).await?,
            None => client.break_key(key).await?,
        };
        let said = outcome(key, &broken);
        (Some(broken).filter(|broken| broken.holders > 0), said)
    } else {
        let seen = KeyView::from(&client.inspect(key).await?);
        let named = |token| seen.holders.iter().any(|it| it.token == Some(token));
        let Some(question) = question(&seen).filter(|_| args.token.is_none_or(named)) else {
            return nobody(args, printer);
        };
        if !printer.confirmed(&question)? {
            return Ok(exit::DECLINED);
        }
        // Others may have got it before the answer.
        let is_asked = |now: &KeyView| token.is_some() || same_holders(&now.holders, &seen.holders);
        break_if(&client, key, token, is_asked).await?
    };
    let (line, status) = match broken {
        Some(broken) => {
            let token = broken.token.some().map(Token::get);
            let line = done(key, broken.holders).with_known("token", token);
            (line, exit::OK)
        }
        None if args.yes || token.is_some() => return nobody(args, printer),
        None => (done(key, 0), exit::DECLINED),
    };
    printer.done(&line, &said)?;
    Ok(status)
}

/// Nobody holds the key, or not with this token: nothing was changed.
fn nobody(args: &BreakArgs, printer: &Printer) -> Result<u8, Failure> {
    let key = &*args.key;
    if key.contains(['*', '?', '[']) {
        let message = format!("nobody holds {key}: break takes a key, not a pattern");
        let pattern = quoted(Path::new(key));
        return Err(Failure::usage(message).hint(format!("leasehold ls {pattern} lists the keys")));
    }
    let (status, said) = match args.token {
        Some(token) => (
            exit::DECLINED,
            format!("nothing was broken: nobody holds {key} with token {token}"),
        ),
        None => (exit::OK, format!("nobody holds {key}")),
    };
    printer.done(&done(key, 0), &said)?;
    Ok(status)
}

/// What `--json` prints.
fn done(key: &str, holders: u64) -> Fields {
    Fields::default().with("key", key).with("holders", holders)
}
