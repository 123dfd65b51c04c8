//! Breaking a lock: what is asked before, what is done, and what is said of it.

use leasehold::{Broken, Client, Error, Token};

use crate::view::{KeyView, held_by};

/// Looks at the key once more, and breaks it, or only that grant, if what is seen is still what was asked
/// about. Answers what was done, if anybody lost it, and what to say.
pub async fn break_if(
    client: &Client,
    key: &str,
    token: Option<Token>,
    is_asked: impl FnOnce(&KeyView) -> bool,
) -> Result<(Option<Broken>, String), Error> {
    let now = KeyView::from(&client.inspect(key).await?);
    if !is_asked(&now) {
        let held = held_by(&now.holders).unwrap_or_else(|| "free".to_owned());
        return Ok((None, format!("nothing was broken: now {key} is {held}")));
    }
    // If they are of one grant, no later one is broken instead.
    let mut tokens = now.holders.iter().map(|holder| holder.token);
    let first = tokens.next().flatten();
    let only = first.filter(|_| tokens.all(|token| token == first));
    let broken = match token.or_else(|| only.map(Token::from)) {
        Some(token) => client.break_grant(key, token).await?,
        None => client.break_key(key).await?,
    };
    let said = outcome(key, &broken);
    Ok((Some(broken).filter(|broken| broken.holders > 0), said))
}

/// What is asked before, with the key and its holders; `None` if nobody holds it.
pub fn question(seen: &KeyView) -> Option<String> {
    let held = held_by(&seen.holders)?;
    Some(format!("{} is {held}. Break it?", seen.key))
}

/// What was done.
pub fn outcome(key: &str, broken: &Broken) -> String {
    let whom = match broken.holders {
        0 => return format!("nothing was broken: another holds {key} now, or nobody"),
        1 => "its holder".to_owned(),
        holders => format!("its {holders} holders"),
    };
    match broken.token.some() {
        Some(token) => format!(
            "broke {key}, taken from {whom}: tokens up to {token} are void; the next one is higher"
        ),
        None => format!(
            "broke {key}: its holder is not fenced, and learns of it when it next renews or releases"
        ),
    }
}
