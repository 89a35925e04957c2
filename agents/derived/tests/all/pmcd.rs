//! The agent in the real pmcd, compared with libpcp's clients that have the same configuration.

use crate::scene::{Scene, Watch, client, operand, until};
use testkit::{Agent, Pcp};

const CONFIG: &str = "\
# Constants of agent sample.
plus = sample.long.one + sample.long.hundred
plus(oneline) = the sum of two
scaled.ratio = sample.double.bin / 100
bins = sample.bin - 7
bins(oneline) = bins, less
bins(helptext) = 'Each bin
less seven.'
one.of_them = sample.bin[bin-500]
some = matchinst(/bin-[12]00/, sample.bin)
highest = max(sample.bin)
guarded = sample.long.one < 5 ? sample.bin : sample.part_bin
words = sample.string.hullo
many = count(sample.hordes.one)
";

/// Returns pminfo's output about a metric without identifiers.
fn comparable(text: &str) -> Vec<String> {
    let lines =
        text.lines().skip_while(|line| line.is_empty()).skip(1).map(|line| match line.split_once("  InDom: ") {
            Some((ty, indom)) => format!("{ty} {}", indom.starts_with("PM_INDOM_NULL")),
            None => line.to_owned(),
        });
    lines.collect()
}

#[test]
#[ignore = "needs PCP"]
fn as_clients_derive_it() {
    let pcp = Pcp::required();
    let scene = Scene::new(CONFIG);
    let pmcd = scene.start(&["-t", "100msec"]);
    let names: Vec<&str> = CONFIG.lines().filter_map(|line| Some(line.split_once(" = ")?.0)).collect();
    let names: Vec<&str> = names.into_iter().filter(|name| !name.contains('(')).collect();
    assert_eq!(names.len(), 9);
    for name in names {
        until(&pmcd, "pminfo", &["-f", &format!("derived.{name}")], "value ");
        for what in ["-d", "-f", "-T", "-t"] {
            let ours = pmcd.run("pminfo", [what, &format!("derived.{name}")]).text;
            let mut command = pcp.command("pminfo");
            command.args(["-h", &pmcd.host(), what, name]).env("PCP_DERIVED_CONFIG", scene.config());
            let theirs = pcp.run_command(command, "").text;
            // Without any help text libpcp returns an error.
            if !theirs.contains("One-line or help text is not available") {
                assert!(!theirs.contains("Unknown metric"), "{theirs}");
                assert_eq!(comparable(&ours), comparable(&theirs), "{what} {name}");
            }
        }
    }
}

/// The operand's value is the number of fetches that have reached it.
#[test]
#[ignore = "needs PCP"]
fn a_group_is_sampled_when_it_is_asked_for_and_in_one_fetch() {
    let scene =
        Scene::new("square = operand.square\nvalue = operand.value\ncount = operand.count\nother = other.name\n");
    let pmcd = scene.pmcd().agent(operand()).agent(scene.agent(&["-t", "50msec"])).start();
    until(&pmcd, "pminfo", &["-f", "derived.control.definitions.good"], "value 3");
    let mut direct = Watch::new(&pmcd, &["operand.count"]);
    // At its start the agent samples, for clients that have waited for it. Then it waits for requests.
    let mut fetches = || direct.numbers()[0].unwrap();
    assert!(fetches() > 1.0);
    assert!((0..60).any(|_| {
        let before = fetches();
        std::thread::sleep(std::time::Duration::from_millis(300));
        fetches() == before + 1.0
    }));
    let mut watch = Watch::new(&pmcd, &["derived.square", "derived.count", "derived.value", "derived.control.samples"]);
    watch.until("together", |values| {
        let number = |at: usize| values[at].as_ref().ok()?.first().map(|value| value.1);
        number(2).is_some() && number(0).is_some_and(|square| Some(square.sqrt()) == number(1))
    });
    let mut seen: Vec<[f64; 2]> = Vec::new();
    for _ in 0..100 {
        let values = watch.numbers();
        let [Some(square), Some(count), Some(_), Some(samples)] = values[..] else { continue };
        // Both values are from one fetch: one is the square of the other.
        assert_eq!(square, count * count);
        // The sampler may have begun another sample that is not published yet.
        seen.push([count, samples]);
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let [first, last] = [seen[0], seen[seen.len() - 1]];
    let (counted, sampled) = (last[0] - first[0], last[1] - first[1]);
    assert!(counted > 3.0 && (counted - sampled).abs() <= 1.0, "{seen:?}");
}

/// pmcd answers the sampler between the lookup and the fetch.
#[test]
#[ignore = "needs PCP"]
fn the_first_fetch_after_a_lookup_has_values() {
    const COUNT: usize = 20;
    let scene = Scene::new("first = sample.long.one\n");
    let pmcd = scene.start(&["-t", "1hour"]);
    until(&pmcd, "pminfo", &["-f", "derived.first"], "value 1");
    let names = (0..COUNT).map(|n| format!("n{n} = sample.long.ten + {n}\n"));
    scene.write(&format!("first = sample.long.one\n{}", names.collect::<String>()));
    pmcd.run("pmstore", ["derived.control.reload", "1"]).ok();
    until(&pmcd, "pminfo", &["-f", "derived.control.definitions.good"], "value 21");
    let mut client = client(&pmcd);
    let mut found = 0;
    for n in 0..COUNT {
        let pmid = client.lookup_name(&format!("derived.n{n}")).unwrap();
        let sample = client.fetch(&[pmid]).unwrap();
        found += usize::from(sample.set(0).unwrap().values().count() == 1);
    }
    // On a busy machine some samples take longer. If lookups did not make the agent sample, there would be no values.
    assert!(found > 0);
}

#[test]
#[ignore = "needs PCP"]
fn over_sockets() {
    let scene = Scene::new(CONFIG);
    let plain = |scene: &Scene| {
        let agent = Agent::new("derived", 404, env!("CARGO_BIN_EXE_pmdaderived")).pmns(&scene.pmns(&scene.config()));
        agent.args(["-c", scene.config().to_str().unwrap(), "-U", "root"])
    };
    for agent in [plain(&scene).unix(), plain(&scene).inet(), plain(&scene)] {
        let pmcd = scene.pmcd().agent(scene.sample.agent()).agent(agent).start();
        until(&pmcd, "pminfo", &["-f", "derived.plus"], "value 101");
        assert_eq!(pmcd.agent_status("derived"), 0);
    }
}

/// pmcd sends an error to its local clients while the agent is not ready.
#[test]
#[ignore = "needs PCP"]
fn the_first_connection_serves() {
    let scene = Scene::new("value = sample.long.one\n");
    let pmcd = scene.start(&[]);
    until(&pmcd, "pminfo", &["-f", "derived.value"], "value 1");
    let log = pmcd.log("derived");
    assert_eq!(log.matches("connected to").count(), 1, "{log}");
    assert!(!log.contains("sampling failed"), "{log}");
}
