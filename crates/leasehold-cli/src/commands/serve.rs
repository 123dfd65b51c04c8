//! `leasehold serve`: the locks of a store on a page, as JSON and as metrics.

use std::future::pending;

use leasehold_console::serve::{Auth, MIN_TOKEN_LENGTH, ServeOptions, TOKEN_HINT, listen};

use crate::args::ServeArgs;
use crate::connect::{Opening, connect};
use crate::failure::Failure;
use crate::output::Printer;
use crate::signals::Signals;
use crate::user_file::{Links, Owner, UserFile};
use crate::{env, exit};

/// Serves until a signal comes.
pub(crate) async fn serve(args: &ServeArgs, printer: &Printer) -> Result<u8, Failure> {
    let auth = Auth {
        token: token(args)?,
        may_break: args.allow_break,
        hosts: args.host.clone(),
    };
    auth.check(args.listen)?;
    let client = connect(&args.common.store.settings).await?;
    let mut signals = Signals::listen()?;
    let store = client.store_url().to_owned();
    let opening = Opening::of(&args.common.store.settings);
    let options = ServeOptions {
        access: opening.access(),
        url: opening.url,
        auth,
        max_series: args.max_series,
    };
    let (address, serving) = listen(args.listen, client, options).await?;
    let url = format!("http://{address}/");
    let said = serde_json::json!({ "url": url, "store": store });
    let text = printer.shown(&[said], || format!("serving {store} at {url}\n"))?;
    // Whether or not somebody reads it.
    let said = async {
        printer.beside(&text).await?;
        pending::<Result<_, Failure>>().await
    };
    tokio::select! {
        never = serving => match never {},
        failed = said => failed,
        _ = signals.next() => Ok(exit::OK),
    }
}

fn token(args: &ServeArgs) -> Result<Option<String>, Failure> {
    let text = match (&args.token_file, std::env::var_os(env::SERVE_TOKEN)) {
        (Some(path), _) => {
            let cannot_read = |error| {
                let message = format!("cannot read the token in {}: {error}", path.display());
                Failure::usage(message)
            };
            let file = UserFile::open(path, Links::Follow).map_err(cannot_read)?;
            file.check(Owner::Anybody)?;
            file.text().map_err(cannot_read)?
        }
        // What is not UTF-8 is no printable character: it is refused below.
        (None, Some(text)) if !text.is_empty() => text.to_string_lossy().into_owned(),
        _ => return Ok(None),
    };
    let token = text.lines().next().unwrap_or_default().trim().to_owned();
    if token.len() < MIN_TOKEN_LENGTH || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        let message = format!(
            "the token is too short, or has spaces: it takes {MIN_TOKEN_LENGTH} printable characters"
        );
        return Err(Failure::usage(message).hint(TOKEN_HINT));
    }
    Ok(Some(token))
}
