//! Metrics that only administrators may store, for each host of an agent.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Command;

use crate::stage::{self, RULE, Stage, example};
use pcp_collector::{Channel, Collector, Launch, Local, SharedObject, Stream};
use pcp_pdu::handshake::{self, Attr, Attribute, Features};
use pmapi::{Atom, Config, Domain, Error, PmId};
use pmda::Agent;
use pmda::host::{Engine, Session};

fn domain() -> Domain {
    Domain::new(stage::DOMAIN).unwrap()
}

/// Returns whether the agent lets a client store, with or without a user that pmcd reports.
fn stores(agent: &mut Collector<impl Channel>, client: i32, uid: Option<u32>) -> bool {
    agent.as_client(client);
    if let Some(uid) = uid {
        let value = uid.to_string();
        let attr = Attr { attribute: Attribute::USERID, value: value.as_bytes() };
        agent.send_raw(|out, from| attr.encode(out, from)).unwrap();
    }
    match agent.store(PmId::new(domain(), RULE), None, Atom::U32(1)) {
        Ok(()) => true,
        Err(pcp_collector::Error::Agent(Error::PERMISSION)) => false,
        Err(e) => panic!("{e}"),
    }
}

/// Checks that administrators may store and others may not. `unknown` is whether a client without a known user may.
fn rule(agent: &mut Collector<impl Channel>, unknown: bool) {
    assert_eq!(stores(agent, 1, None), unknown);
    assert!(stores(agent, 2, Some(0)));
    assert!(stores(agent, 3, Some(nix::unistd::geteuid().as_raw())));
    assert!(!stores(agent, 4, Some(54_321)));
    if let Some(pcp) = nix::unistd::User::from_name("pcp").unwrap() {
        assert!(stores(agent, 5, Some(pcp.uid.as_raw())));
    }
    // Another client gets the number of an administrator that has disconnected.
    agent.send_raw(|out, _| handshake::encode_error(out, 2, Err(Error::NOTCONN))).unwrap();
    assert_eq!(stores(agent, 2, None), unknown);
    attributes_arrive_together(agent, unknown);
}

/// Checks that the attributes of a client do not apply to the next one with the same number, even if pmcd has not
/// reported the end of the first, which happens while the agent is busy or not ready.
fn attributes_arrive_together(agent: &mut Collector<impl Channel>, unknown: bool) {
    use Attribute as A;
    let may_store = |agent: &mut Collector<_>, series: &[(i32, Attribute, &str)]| {
        for (client, attribute, value) in series {
            let attr = Attr { attribute: *attribute, value: value.as_bytes() };
            agent.as_client(*client).send_raw(|out, from| attr.encode(out, from)).unwrap();
        }
        stores(agent, 6, None)
    };
    assert!(may_store(agent, &[(6, A::USERID, "0"), (6, A::GROUPID, "0"), (6, A::PROCESSID, "1")]));
    // Requests of a client do not end its identity.
    assert!(stores(agent, 6, None));
    // The next client has authenticated, but has no user on this host.
    assert_eq!(may_store(agent, &[(6, A::USERNAME, "guest")]), unknown);
    assert!(may_store(agent, &[(6, A::GROUPID, "0"), (6, A::USERID, "0")]));
    assert!(!may_store(agent, &[(6, A::USERID, "54321")]));
    // Another client's attributes arrive in between.
    let series = [(6, A::USERID, "0"), (7, A::USERID, "0"), (6, A::GROUPID, "100")];
    assert_eq!(may_store(agent, &series), unknown);
    // A series has each attribute once.
    let series = [(6, A::USERID, "0"), (6, A::USERNAME, "root"), (6, A::USERNAME, "guest")];
    assert_eq!(may_store(agent, &series), unknown);
}

fn process() -> Command {
    let user = nix::unistd::User::from_uid(nix::unistd::geteuid()).unwrap().unwrap().name;
    let mut command = Command::new(example("stage"));
    command.args(["-l", "-", "-U", &user]).env_remove("PMDA_OPEN_CONTROL");
    command
}

#[test]
fn a_program_that_embeds_the_agent_is_the_client() {
    rule(&mut Collector::new(Local::<Stage>::new().unwrap()), true);
}

#[test]
fn unknown_clients_of_pmcd_are_refused() {
    rule(&mut Launch::pipe(process()).start().unwrap(), false);
}

#[test]
fn unknown_clients_of_a_shared_objects_host_are_refused() {
    // SAFETY: it is an agent of this workspace.
    rule(&mut unsafe { SharedObject::collector(&example("libpmda_stage.so"), "stage_init", domain()) }.unwrap(), false);
}

#[test]
fn an_option_and_the_environment_open_it_to_all() {
    let mut option = process();
    option.arg("--open-control");
    let mut environment = process();
    environment.env("PMDA_OPEN_CONTROL", "1");
    for command in [option, environment] {
        let mut agent = Launch::pipe(command).start().unwrap();
        assert!(stores(&mut agent, 1, None) && stores(&mut agent, 2, Some(54_321)));
    }
    let mut closed = process();
    closed.env("PMDA_OPEN_CONTROL", "0");
    assert!(!stores(&mut Launch::pipe(closed).start().unwrap(), 1, None));
}

/// dbpmda(1) answers the version exchange without the flag that pmcd returns, so the agent trusts it.
#[test]
fn a_collector_that_tells_of_no_clients_is_the_client() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let agent = std::thread::spawn(move || {
        let mut session = Session::open(ours.try_clone().unwrap(), ours, Stage::WANTS).unwrap();
        let mut engine = Engine::<Stage>::builder().domain(domain()).config(Config::new(b"", [])).build().unwrap();
        session.run(&mut engine).unwrap();
    });
    let input = OwnedFd::from(theirs.try_clone().unwrap());
    let mut dbpmda = Collector::new(Stream::new(input, theirs.into()).unwrap());
    dbpmda.receive_raw().unwrap();
    dbpmda.send_raw(|out, from| handshake::encode_creds(out, from, Features::default())).unwrap();
    rule(&mut dbpmda, true);
    drop(dbpmda);
    agent.join().unwrap();
}
