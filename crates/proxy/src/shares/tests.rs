use super::*;
use proptest::prelude::*;

const SECOND: Duration = Duration::from_secs(1);
const YIELD_AFTER: Duration = Duration::from_secs(5);

/// Two machines share a network.
fn client(number: u8) -> Client {
    match number {
        0 => Client::Host,
        1 => Client::lan([192, 0, 2, 1].into()),
        2 => Client::lan([192, 0, 2, 2].into()),
        number => Client::lan([0xfd00, 0, 0, 0, 0, 0, 0, number.into()].into()),
    }
}

#[test]
fn a_client_that_takes_all_places_makes_room_for_every_other() {
    let start = Instant::now();
    let mut shares = Shares::new(9, Some(YIELD_AFTER));
    for number in 0..9u8 {
        shares.insert(client(1), number, start).unwrap();
    }
    assert_eq!(shares.insert(client(1), 9, start), None);
    shares.touch(0, start + SECOND);
    for displaced in [1, 2, 3, 4] {
        let (_, made_room) = shares.insert(client(2), 100, start).unwrap();
        let made_room = made_room.unwrap();
        assert_eq!((made_room.client, made_room.value), (client(1), displaced));
    }
    // Their shares differ by one: an active entry of either displaces none.
    assert_eq!(shares.insert(client(2), 100, start), None);
    assert_eq!(shares.insert(client(1), 9, start), None);
    let (_, made_room) = shares.insert(client(0), 200, start).unwrap();
    assert_eq!(made_room.unwrap().client, client(1));
}

#[test]
fn an_idle_entry_makes_room_for_its_own_client() {
    let start = Instant::now();
    for yield_after in [None, Some(YIELD_AFTER)] {
        let mut shares = Shares::new(2, yield_after);
        let (first, _) = shares.insert(client(1), 'a', start).unwrap();
        shares.insert(client(2), 'b', start).unwrap();
        let later = start + YIELD_AFTER;
        shares.touch(first, start + SECOND);
        assert_eq!(shares.insert(client(1), 'c', later), None);
        let made_room = shares.insert(client(2), 'c', later);
        let made_room = made_room.map(|(_, displaced)| displaced.unwrap().value);
        assert_eq!(made_room, yield_after.map(|_| 'b'));
    }
}

#[test]
fn machines_of_one_network_share_its_share() {
    let start = Instant::now();
    let mut shares = Shares::new(8, None);
    for _ in 0..4 {
        shares.insert(client(1), 'v', start).unwrap();
        shares.insert(client(3), 'a', start).unwrap();
    }
    for own in 1..=2 {
        let (_, displaced) = shares.insert(client(4), 'b', start).unwrap();
        assert_eq!(displaced.unwrap().client, client(3));
        assert_eq!(shares.of(client(4)), own);
    }
    // Many addresses get no larger share than one.
    for number in 5..200 {
        shares.insert(client(number), 'c', start);
    }
    assert_eq!(shares.of(client(1)), 4);
}

#[test]
fn an_entry_of_several_clients_counts_for_the_one_that_has_few() {
    let start = Instant::now();
    let mut shares = Shares::new(3, None);
    let (shared, _) = shares.insert(client(1), 's', start).unwrap();
    shares.insert(client(1), 'a', start).unwrap();
    shares.insert(client(1), 'b', start).unwrap();
    shares.share(shared, client(2));
    assert_eq!((shares.of(client(1)), shares.of(client(2))), (2, 1));
    let (_, displaced) = shares.insert(client(0), 'c', start).unwrap();
    assert_eq!(displaced.unwrap().value, 'a');
    shares.share(shared, client(1));
    assert_eq!(shares.of(client(2)), 1);
}

#[test]
fn a_client_has_a_limit_of_its_own() {
    let start = Instant::now();
    let mut shares = Shares::new(9, Some(Duration::ZERO)).with_most_own(1);
    let (first, _) = shares.insert(client(1), (), start).unwrap();
    assert_eq!(shares.insert(client(1), (), start), None);
    let (other, _) = shares.insert(client(2), (), start).unwrap();
    shares.remove(first).unwrap();
    shares.insert(client(1), (), start).unwrap();
    shares.share(other, client(1));
    assert_eq!(shares.of(client(1)), 1);
}

#[derive(Clone, Debug)]
enum Operation {
    Insert(u8),
    Displace(u8),
    Touch(usize),
    Share(usize, u8),
    Remove(usize),
    Pass(u64),
}

fn operation() -> impl Strategy<Value = Operation> {
    let client = 0..6u8;
    prop_oneof![
        8 => client.clone().prop_map(Operation::Insert),
        1 => client.clone().prop_map(Operation::Displace),
        4 => any::<usize>().prop_map(Operation::Touch),
        1 => (any::<usize>(), client).prop_map(|(at, client)| Operation::Share(at, client)),
        1 => any::<usize>().prop_map(Operation::Remove),
        1 => (0..8u64).prop_map(Operation::Pass),
    ]
}

/// An entry of the model: its number, its client, its last use.
type Known = (u64, Client, Instant);

fn size(model: &[Known], is_counted: impl Fn(Client) -> bool) -> usize {
    model.iter().filter(|(_, own, _)| is_counted(*own)).count()
}

/// Checks that no client with a fair share has lost an entry to `new`. The model still has
/// `victim`.
fn is_fair(model: &[Known], victim: Client, new: Client, is_idle: bool) {
    let of = |client| size(model, |own| own == client);
    let of_network = |client: Client| size(model, |own| own.network() == client.network());
    let most = model.iter().map(|(_, own, _)| of_network(*own)).max();
    if victim.network() != new.network() {
        // The largest network loses an entry, so none below the fair share does.
        assert_eq!(Some(of_network(victim)), most);
        assert!(of_network(victim) > of_network(new) + usize::from(!is_idle));
    }
    let most = model
        .iter()
        .filter(|(_, own, _)| own.network() == victim.network())
        .map(|(_, own, _)| of(*own))
        .max();
    if victim.network() != new.network() || victim != new {
        assert_eq!(Some(of(victim)), most);
    } else {
        assert!(is_idle);
    }
}

proptest! {
    #[test]
    fn the_limit_holds_and_no_client_loses_its_fair_share(
        most in 0..12usize,
        yields in any::<bool>(),
        operations in proptest::collection::vec(operation(), 0..200),
    ) {
        let mut now = Instant::now();
        let mut shares = Shares::new(most, yields.then_some(YIELD_AFTER));
        // The entry used least recently first.
        let mut model: Vec<Known> = Vec::new();
        for operation in operations {
            // Every use has its own time, so that the order of use is clear.
            now += Duration::from_millis(1);
            let at = |at: usize| (!model.is_empty()).then(|| at % model.len());
            let displaced = |model: &mut Vec<Known>, shares: &Shares<()>, new: Client| {
                let is_lost = |known: &Known| !shares.entries.contains_key(&known.0);
                let lost = model.iter().position(is_lost).expect("an entry has lost its place");
                let (_, victim, last) = model[lost];
                let is_first = model.iter().position(|(_, own, _)| *own == victim);
                assert_eq!(is_first, Some(lost), "the victim was used least recently");
                let is_idle = yields && now.saturating_duration_since(last) >= YIELD_AFTER;
                is_fair(model, victim, new, is_idle);
                model.remove(lost);
            };
            match operation {
                Operation::Insert(new) => {
                    let new = client(new);
                    let is_full = model.len() >= most;
                    match shares.insert(new, (), now) {
                        Some((number, lost)) => {
                            prop_assert_eq!(lost.is_some(), is_full);
                            if lost.is_some() {
                                displaced(&mut model, &shares, new);
                            }
                            model.push((number, new, now));
                        }
                        None => {
                            prop_assert!(is_full);
                            // Only a client is refused that has its share.
                            let networks: std::collections::HashSet<_> =
                                model.iter().map(|(_, own, _)| own.network()).collect();
                            let own = size(&model, |own| own.network() == new.network());
                            prop_assert!((own + 1) * networks.len().max(1) >= most);
                        }
                    }
                }
                Operation::Displace(new) => {
                    let new = client(new);
                    if shares.displace(new, now).is_some() {
                        displaced(&mut model, &shares, new);
                    }
                }
                Operation::Touch(which) => if let Some(at) = at(which) {
                    let (number, own, _) = model.remove(at);
                    shares.touch(number, now);
                    model.push((number, own, now));
                },
                Operation::Share(which, user) => if let Some(at) = at(which) {
                    let number = model[at].0;
                    shares.share(number, client(user));
                    model[at].1 = shares.entries[&number].client;
                },
                Operation::Remove(which) => if let Some(at) = at(which) {
                    let (number, ..) = model.remove(at);
                    prop_assert!(shares.remove(number).is_some());
                    prop_assert!(shares.remove(number).is_none());
                },
                Operation::Pass(seconds) => now += Duration::from_secs(seconds),
            }
            prop_assert!(shares.len() <= most);
            prop_assert_eq!(shares.len(), model.len());
            prop_assert_eq!(shares.is_empty(), model.is_empty());
            for number in 0..6 {
                let own = size(&model, |own| own == client(number));
                prop_assert_eq!(shares.of(client(number)), own);
            }
            let kept: usize = shares.by_size.iter().map(|(size, _)| size).sum();
            prop_assert_eq!(kept, model.len());
            prop_assert!(shares.clients.values().all(|own| !own.is_empty()));
            prop_assert_eq!(shares.by_size.len(), shares.networks.len());
        }
    }
}
