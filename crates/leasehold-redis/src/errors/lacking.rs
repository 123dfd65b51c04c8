//! Finds the missing rights of a user in what a server says.

/// What to add to the user's ACL rule, if the server names the commands that are missing.
pub(crate) fn lacking(text: &str) -> Option<String> {
    // Redis 7 and Valkey, also for scripts: "User bob has no permissions to run the 'select'
    // command".
    let (_, rest) = text.split_once("has no permissions to run the '")?;
    let (command, _) = rest.split_once('\'')?;
    let plain = |c: char| c.is_ascii_alphanumeric() || "|_-.".contains(c);
    let known = !command.is_empty() && command.chars().all(plain);
    known.then(|| {
        format!(
            "add +{} to the user's ACL rule",
            command.to_ascii_lowercase()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_is_named_is_the_remedy() {
        for (said, remedy) in [
            (
                "User bob has no permissions to run the 'select' command",
                Some("add +select to the user's ACL rule"),
            ),
            (
                "this user has no permissions to run the 'CONFIG|GET' command or its subcommand",
                Some("add +config|get to the user's ACL rule"),
            ),
            ("No permissions to access a key", None),
            ("has no permissions to run the 'rm -rf' command", None),
            ("has no permissions to run the '", None),
        ] {
            assert_eq!(lacking(said).as_deref(), remedy, "{said}");
        }
    }
}
