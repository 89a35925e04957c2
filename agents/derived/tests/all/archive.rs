//! PCP's tools record and replay the agent's metrics. Derived metrics that libpcp evaluates from the recorded operands
//! equal those that the agent evaluated.

use std::fs;
use std::process::Command;

use crate::scene::{Scene, operand, until};
use testkit::Pcp;

const CONFIG: &str = "\
count = operand.count
square = operand.square
count_step = delta(operand.count)
count_speed = rate(operand.count)
square_step = delta(operand.square)
square_speed = rate(operand.square)
both = square_step + 1000 * instant(count)
named = operand.value * 2
";

/// Definitions that libpcp evaluates from the recorded operands.
const CLIENT: &str = "\
client.count_step = delta(derived.count)
client.square_step = delta(derived.square)
client.both = derived.square_step + 1000 * instant(derived.count)
";

#[test]
#[ignore = "needs PCP"]
fn recorded_and_replayed() {
    let pcp = Pcp::required();
    let scene = Scene::new(CONFIG);
    let pmcd = scene.pmcd().agent(operand()).agent(scene.agent(&["-t", "100msec"])).start();
    until(&pmcd, "pminfo", &["-f", "derived.square_step"], "value");
    let path = |name: &str| scene.dir.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("log"), "log mandatory on 100 msec { derived }\n").unwrap();
    fs::write(path("client"), CLIENT).unwrap();
    let text =
        pmcd.run("pmlogger", ["-c", &path("log"), "-l", &path("pmlogger.log"), "-s", "40", &path("archive")]).text;
    assert!(fs::exists(path("archive.0")).unwrap(), "{text}{}", fs::read_to_string(path("pmlogger.log")).unwrap());

    if !pcp.has_python() {
        return;
    }
    // `-u` prints each record, without interpolation. Debian's Python has PCP's module.
    let metrics = ["count_step", "square_step", "both"];
    let mut pmrep = Command::new("/usr/bin/python3");
    pmrep.args(["/usr/bin/pmrep", "-a", &path("archive"), "-u", "-r", "-o", "csv", "-P", "9"]);
    pmrep.args(metrics.iter().flat_map(|metric| [format!("client.{metric}"), format!("derived.{metric}")]));
    pmrep.args(["derived.count_speed", "derived.square_speed"]).env("PCP_DERIVED_CONFIG", path("client"));
    let text = pcp.run_command(pmrep, "").ok();
    let mut compared = 0;
    for line in text.lines().skip(1) {
        let values: Vec<Option<f64>> = line.split(',').skip(1).map(|value| value.parse().ok()).collect();
        let [count, own_count, square, own_square, both, own_both, count_speed, square_speed] = values[..] else {
            panic!("{line}")
        };
        if own_square.is_some() {
            assert_eq!(both, own_both, "{line}");
        }
        if let (Some(count_speed), Some(square_speed)) = (count_speed, square_speed) {
            // All metrics of a sample have the same time since the previous sample.
            let [count, square] = [own_count, own_square].map(Option::unwrap);
            assert!((square / square_speed - count / count_speed).abs() < 1e-4, "{line}");
        }
        // If the counter has grown by one, consecutive records contain consecutive samples of the agent.
        if count == Some(1.0) && own_count == count {
            assert_eq!(square, own_square, "{line}");
            compared += 1;
        }
    }
    assert!(compared > 10, "{text}");

    // Descriptors in the archive are the same as in pmcd.
    let described = |from: &str, of: &str| {
        let mut command = pcp.command("pminfo");
        command.args([from, of, "-dm", "derived.named", "derived.both"]);
        pcp.run_command(command, "").ok()
    };
    assert_eq!(described("-a", &path("archive")), described("-h", &pmcd.host()));
    let replay = |tool: &str, options: &[&str]| {
        let mut command = pcp.command(tool);
        command.args(options);
        pcp.run_command(command, "").ok()
    };
    let text = replay("pmprobe", &["-a", &path("archive"), "-I", "derived.named"]);
    assert!(text.contains("\"a\" \"b\""), "{text}");
    let text = replay("pmval", &["-U", &path("archive"), "-f", "1", "derived.count_step"]);
    assert!(text.lines().filter(|line| line.ends_with(" 1.0")).count() > 10, "{text}");
}
