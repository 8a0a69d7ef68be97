//! Refusals, warnings and probes.

use super::*;

#[test]
fn a_system_without_permission_is_not_changed() {
    let Some(world) = World::new() else { return };
    let mut facts = world.gateway.run(async || Facts::collect().await.unwrap());
    facts.is_permitted = false;
    assert_eq!(Plan::new(&settings(), &facts), Err(Refusal::NotPermitted));
}

#[test]
fn nftables_is_probed_without_a_trace() {
    let Some(world) = World::new() else { return };
    let before = world.snapshot();
    let facts = world.gateway.run(async || Facts::collect().await.unwrap());
    assert_eq!(facts.nft, NftSupport::Works);
    assert!(facts.is_permitted && facts.has_ipv6 && !facts.drops_forwarded);
    assert_eq!(facts.device("lan0").unwrap().addresses.len(), 2);
    assert_same(&world.snapshot(), &before, ());
}

#[test]
fn ipv6_that_is_disabled_is_skipped() {
    let Some(world) = World::new() else { return };
    world.gateway.run(async || {
        let listeners = Listeners::new();
        netns::command("sysctl -w net.ipv6.conf.all.disable_ipv6=1");
        let (_tun, applied) = start(world.state(), &listeners.settings()).await;
        assert_eq!(applied.plan().warnings(), [Warning::Ipv6Disabled]);
        assert!(
            applied
                .plan()
                .rules()
                .iter()
                .all(|rule| rule.family == Family::V4)
        );
        let client = connect(SocketAddr::new(ELSEWHERE[0], 443)).unwrap();
        exchange(client, listeners.redirect[0].accept().unwrap().0);
    });
}

#[test]
fn a_full_connection_table_is_reported() {
    let Some(world) = World::new() else { return };
    let mut facts = world.gateway.run(async || Facts::collect().await.unwrap());
    facts.conntrack = Some(Conntrack {
        count: 95,
        max: 100,
    });
    let plan = Plan::new(&settings(), &facts).unwrap();
    assert_eq!(
        plan.warnings(),
        [Warning::ConntrackNearlyFull {
            count: 95,
            max: 100
        }]
    );
}
