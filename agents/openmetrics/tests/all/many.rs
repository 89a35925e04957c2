//! Very many sources that never answer, and have very long limits. A source that answers is read nevertheless.

use std::net::TcpListener;
use std::path::PathBuf;

use crate::scene::{Scene, until, value};

/// Number of sources that hang: several times the number of threads that read.
const MANY: usize = 60;
/// Options of an agent with few threads. With these times, the tests would fail if a source waited for one that hangs.
const ARGS: [&str; 6] = ["--threads", "16", "--timeout", "1hour", "--script-timeout", "1hour"];

/// Adds sources that answer, one after the other, while `hang` adds sources that hang.
fn good_ones_are_read(scene: &Scene, hang: &dyn Fn(&Scene, usize), good: &dyn Fn(&Scene, &str) -> PathBuf) {
    (0..MANY).for_each(|n| hang(scene, n));
    good(scene, "first");
    let agent = &mut scene.start();
    until("a source that is there from the start", || value(agent, "first.a") == Ok(5.0));
    for round in 1..4 {
        (0..MANY / 2).for_each(|n| hang(scene, round * MANY + n));
        let name = format!("good{round}");
        good(scene, &name);
        until("a new source", || value(agent, &format!("{name}.a")) == Ok(5.0));
        assert_eq!(value(agent, "first.a"), Ok(5.0));
    }
}

#[test]
fn scripts_that_hang() {
    let hang = |scene: &Scene, n: usize| _ = scene.config(&format!("bad{n}.sh"), "#!/bin/sh\nexec sleep 1h\n", 0o755);
    good_ones_are_read(&Scene::new(&ARGS), &hang, &|scene, name| {
        scene.config(&format!("{name}.sh"), "#!/bin/sh\necho a 5\n", 0o755)
    });
}

#[test]
fn servers_that_hang() {
    // The system completes connections, but nothing answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let hang = move |scene: &Scene, n: usize| _ = scene.url(&format!("bad{n}"), &format!("http://{address}/"));
    let good = |scene: &Scene, name: &str| scene.document(name, "a 5\n");
    good_ones_are_read(&Scene::new(&ARGS), &hang, &good);
    // New scripts do not wait for servers, either.
    good_ones_are_read(&Scene::new(&ARGS), &hang, &|scene, name| {
        scene.config(&format!("{name}.sh"), "#!/bin/sh\necho a 5\n", 0o755)
    });
}
