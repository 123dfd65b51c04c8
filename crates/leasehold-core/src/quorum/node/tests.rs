use super::*;

const TTL: Duration = Duration::from_secs(10);

fn at(second: u64) -> StoreTime {
    StoreTime(1_000_000_000 + second * 1_000_000)
}

fn id(number: u128) -> ClaimId {
    ClaimId::from_random(number)
}

fn ask(number: u128, token: u64) -> Acquire {
    Acquire {
        id: id(number),
        token: Token(token),
        ttl: TTL,
        body: Body {
            inbox: Inbox::from_random(u64::try_from(number).unwrap()),
            owner: ClientInfo::default(),
            note: None,
        },
        wait: true,
        ahead: Duration::from_secs(60),
    }
}

fn extend(number: u128, token: u64, repair: bool) -> Extend {
    Extend {
        vote: ask(number, token),
        repair,
    }
}

fn part(number: u128, token: u64) -> Part {
    Part {
        id: id(number),
        token: Token(token),
        wake: true,
    }
}

fn deaf(_: &Inbox, _: Told) -> bool {
    false
}

#[test]
fn a_token_is_accepted_from_one_claim_and_only_above_all_others() {
    let mut node = Node::default();
    assert_eq!(node.acquire(&ask(1, 50), at(0), deaf), Vote::Yes);
    assert_eq!(node.acquire(&ask(1, 50), at(1), deaf), Vote::Yes);
    assert_eq!(
        node.live(at(1)).unwrap().until,
        at(11),
        "asking again raises"
    );
    let left = TTL;
    let highest = Token(50);
    assert_eq!(
        node.acquire(&ask(2, 60), at(1), deaf),
        Vote::Busy { left, highest }
    );
    // Its lease is over, and its token is not to be had again.
    for token in [49, 50] {
        assert_eq!(
            node.acquire(&ask(2, token), at(20), deaf),
            Vote::Stale { highest }
        );
    }
    assert_eq!(node.acquire(&ask(2, 51), at(20), deaf), Vote::Yes);
    assert_eq!(
        node.acquire(&ask(2, 52), at(20), deaf),
        Vote::Yes,
        "upgraded in place"
    );
    assert_eq!(node.live(at(20)).unwrap().token, Token(52));
}

#[test]
fn what_comes_after_its_own_release_is_refused() {
    let mut node = Node::default();
    assert_eq!(
        node.release(&part(1, 50), at(0), deaf),
        Vote::Released { held: false }
    );
    let highest = Token(50);
    assert_eq!(
        node.acquire(&ask(1, 50), at(0), deaf),
        Vote::Stale { highest }
    );
    assert_eq!(node.extend(&extend(1, 50, true), at(0), deaf), Vote::Lost);
    assert_eq!(node.acquire(&ask(1, 51), at(0), deaf), Vote::Yes);
    assert_eq!(
        node.release(&part(1, 51), at(0), deaf),
        Vote::Released { held: true }
    );
    assert_eq!(
        node.release(&part(1, 51), at(0), deaf),
        Vote::Released { held: false }
    );
}

#[test]
fn a_contender_that_gives_up_does_not_disturb_the_holder() {
    let mut node = Node::default();
    node.acquire(&ask(1, 50), at(0), deaf);
    node.acquire(&ask(2, 70), at(1), deaf);
    node.release(&part(2, 70), at(1), deaf);
    assert_eq!(node.extend(&extend(1, 50, true), at(2), deaf), Vote::Yes);
    assert_eq!(
        node.acquire(&ask(1, 50), at(3), deaf),
        Vote::Yes,
        "a lost answer"
    );
    assert_eq!(node.live(at(3)).unwrap().until, at(13));
}

#[test]
fn a_renewal_brings_nothing_back() {
    let mut node = Node::default();
    node.acquire(&ask(1, 50), at(0), deaf);
    node.acquire(&ask(2, 60), at(11), deaf);
    for repair in [false, true] {
        assert_eq!(
            node.extend(&extend(1, 50, repair), at(12), deaf),
            Vote::Lost
        );
    }
    node.release(&part(2, 60), at(13), deaf);
    assert_eq!(node.extend(&extend(1, 50, true), at(14), deaf), Vote::Lost);
    // A server that lost its data takes the claim up again, if it may.
    let mut empty = Node::default();
    assert_eq!(empty.extend(&extend(1, 50, false), at(1), deaf), Vote::Lost);
    assert_eq!(empty.extend(&extend(1, 50, true), at(1), deaf), Vote::Yes);
}

#[test]
fn a_clock_gone_mad_does_not_use_up_the_numbers() {
    let mut node = Node::default();
    let ceiling = at(60).0;
    let by = Duration::from_micros(1);
    assert_eq!(
        node.acquire(&ask(1, ceiling + 1), at(0), deaf),
        Vote::Skewed { by }
    );
    assert_eq!(node.acquire(&ask(1, ceiling), at(0), deaf), Vote::Yes);
    node.release(&part(1, ceiling), at(0), deaf);
    assert_eq!(
        node.acquire(&ask(2, ceiling + 1), at(0), deaf),
        Vote::Yes,
        "the next one"
    );
}

#[test]
fn an_id_of_another_client_is_taken() {
    let mut node = Node::default();
    node.acquire(&ask(1, 50), at(0), deaf);
    let mut thief = ask(1, 60);
    thief.body.inbox = Inbox::from_random(9);
    assert_eq!(node.acquire(&thief, at(1), deaf), Vote::Taken);
}

#[test]
fn a_release_wakes_the_first_that_listens() {
    let mut node = Node::default();
    node.acquire(&ask(1, 50), at(0), deaf);
    for number in [2, 3, 4, 2] {
        node.acquire(&ask(number, 60), at(1), deaf);
    }
    let mut told = Vec::new();
    node.release(&part(1, 50), at(2), |inbox, what| {
        told.push((inbox.clone(), what));
        *inbox == Inbox::from_random(3)
    });
    let inbox = Inbox::from_random;
    assert_eq!(told, [(inbox(2), Told::Changed), (inbox(3), Told::Changed)]);
    assert_eq!(node.waiting.len(), 1);
    // Whoever has it does not wait, and who waits is forgotten after a while.
    node.acquire(&ask(4, 61), at(2), deaf);
    assert!(node.waiting.is_empty());
    node.acquire(&ask(5, 61), at(2), deaf);
    node.watch(&inbox(6), TTL, at(4));
    assert_eq!((node.waiting.len(), node.watchers.len()), (1, 1));
    node.watch(&inbox(6), Duration::ZERO, at(5));
    assert_eq!((node.waiting.len(), node.watchers.len()), (0, 0));
}

#[test]
fn breaking_fences_the_holder_and_tells_it() {
    let mut node = Node::default();
    node.acquire(&ask(1, 50), at(0), deaf);
    let mut told = Vec::new();
    let broken = node.break_key(Token(80), at(1), |inbox, what| {
        told.push((inbox.clone(), what));
        true
    });
    assert_eq!(broken, Vote::Broken { token: Token(50) });
    assert_eq!(told, [(Inbox::from_random(1), Told::Revoked(Token(50)))]);
    assert_eq!(node.extend(&extend(1, 50, true), at(2), deaf), Vote::Lost);
    let highest = Token(80);
    assert_eq!(
        node.acquire(&ask(1, 50), at(2), deaf),
        Vote::Stale { highest }
    );
    assert_eq!(node.acquire(&ask(2, 81), at(2), deaf), Vote::Yes);
}
