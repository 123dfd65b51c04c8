//! Elections: one leader, and observers.

use crate::kinds::cast::*;

/// An owner may hold by several claims: when the first of them leaves, another
/// is shown, and its note, though the token stays.
#[test]
fn watchers_hear_when_another_claim_of_the_owner_comes_first() {
    let mut cast = Cast::new();
    for who in 0..2 {
        cast.apply(&Command::Claim(Claim {
            secret: Some(OwnerSecret::from_random(1)),
            note: Some(Note::new(format!("client {who}")).unwrap()),
            ..claim(who, id(who), Mode::EXCLUSIVE)
        }));
    }
    cast.apply(&Command::Watch {
        inbox: inbox(9),
        ttl: LEASE,
    });
    let changed = [Event::Changed { inbox: inbox(9) }];
    let note = |who: usize| {
        Command::Renew(Renew {
            note: Some(Note::new("new").unwrap()),
            ..Renew::new(id(who), LEASE)
        })
    };
    assert_eq!(cast.apply(&note(1)).events, [], "it is not the first");
    assert_eq!(cast.apply(&note(0)).events, changed);
    assert_eq!(cast.apply(&note(0)).events, [], "the same note");
    let left = cast.apply(&release(id(0)));
    assert_eq!(left.reply, Reply::Released { held: true });
    assert_eq!(left.events, changed);
}
