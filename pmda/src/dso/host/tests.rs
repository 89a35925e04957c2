use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU32, Ordering};

use pmapi::{Item, Type};

use super::*;
use crate::client::Client;
use crate::dso::init;
use crate::request::Request;
use crate::setup::Setup;
use crate::values::Values;

const PMID: u32 = 400 << 22;

/// An agent that panics in the place `AT`, and counts how many were dropped.
struct Fragile<const AT: u32> {
    n: u32,
}

const OPEN: u32 = 1;
const REFRESH: u32 = 2;
const FETCH: u32 = 3;
const DONE: u32 = 4;
const CLOSE: u32 = 5;
const DROP: u32 = 6;
const NOWHERE: u32 = 7;
const ELSEWHERE: u32 = 8;

static MADE: [AtomicU32; 9] = [const { AtomicU32::new(0) }; 9];
static CLOSED: [AtomicU32; 9] = [const { AtomicU32::new(0) }; 9];
static DROPPED: [AtomicU32; 9] = [const { AtomicU32::new(0) }; 9];

fn of(counts: &[AtomicU32], at: u32) -> &AtomicU32 {
    &counts[at as usize]
}

impl<const AT: u32> Agent for Fragile<AT> {
    const NAME: &'static str = "fragile";
    const DOMAIN: u16 = 400;

    fn new(setup: &mut Setup) -> Result<Self, BoxError> {
        setup.metric("fragile.n", Item::new(0, 0), Type::U32);
        Ok(Fragile { n: of(&MADE, AT).fetch_add(1, Ordering::Relaxed) })
    }

    fn open(&mut self) -> Result<(), BoxError> {
        assert_ne!(AT, OPEN);
        Ok(())
    }

    fn refresh(&mut self, _: Request<'_>, _: Client) -> Result {
        assert_ne!(AT, REFRESH);
        Ok(())
    }

    fn fetch(&mut self, _: Item, out: &mut Values<'_>) -> Result {
        assert_ne!(AT, FETCH);
        out.put(self.n)
    }

    fn done(&mut self, _: Client) {
        assert_ne!(AT, DONE);
    }

    fn close(&mut self, _: Client) {
        of(&CLOSED, AT).fetch_add(1, Ordering::Relaxed);
        assert_ne!(AT, CLOSE);
    }
}

impl<const AT: u32> Drop for Fragile<AT> {
    fn drop(&mut self) {
        of(&DROPPED, AT).fetch_add(1, Ordering::Relaxed);
        assert_ne!(AT, DROP);
    }
}

fn started<const AT: u32>() -> Box<Interface> {
    let mut interface = Box::new(Interface::challenge(400));
    // SAFETY: this is the same call as pmcd's.
    unsafe { init::<Fragile<AT>>(&mut *interface) };
    interface
}

/// Fetches and frees the value of the metric, as pmcd does.
fn fetched(interface: &Interface) -> Result<u32> {
    let mut result = null_mut();
    // SAFETY: these are the same calls as pmcd's.
    unsafe {
        let code = interface.fetch.unwrap()(1, [PMID].as_mut_ptr(), &mut result, interface.ext);
        Error::from_code(code).map_or(Ok(()), Err)?;
        let set = (&raw const (*result).sets).cast::<*mut super::super::abi::CValueSet>().read();
        let n = Error::from_code((*set).count)
            .map_or_else(|| Ok((&raw const (*set).values).cast::<super::super::abi::CValue>().read().value.word), Err);
        super::super::values::free_values(result);
        n
    }
}

#[test]
fn an_interface_filled_anew_has_a_new_agent_and_the_old_one_has_ended() {
    let mut interface = started::<0>();
    let (ext, n) = (interface.ext, fetched(&interface).unwrap());
    let dropped = of(&DROPPED, 0).load(Ordering::Relaxed);
    // SAFETY: this is what pmcd does when it restarts an agent.
    unsafe { init::<Fragile<0>>(&mut *interface) };
    assert_eq!(interface.ext, ext);
    assert!(of(&DROPPED, 0).load(Ordering::Relaxed) > dropped && fetched(&interface).unwrap() > n);
    let other = started::<0>();
    assert_ne!(other.ext, ext);
    assert!(fetched(&other).is_ok() && fetched(&interface).is_ok());
}

#[test]
fn after_the_agent_there_are_errors() {
    let interface = started::<0>();
    assert!(fetched(&interface).is_ok());
    // SAFETY: as at exit, after which libpcp still reads and calls.
    unsafe {
        Host::<Fragile<0>>::end(interface.ext);
        (*interface.ext).context = 7;
        (*interface.ext).end_context.unwrap()(7);
        assert_eq!((*(*interface.ext).private).interface.cast_const(), &raw const *interface);
    }
    assert_eq!(fetched(&interface), Err(Error::NOAGENT));
}

#[test]
fn an_agent_stays_on_its_thread() {
    let mut interface = started::<ELSEWHERE>();
    let (ext, fetch) = (interface.ext as usize, interface.fetch.unwrap());
    let at = &raw mut *interface as usize;
    let other = std::thread::spawn(move || {
        let (ext, interface) = (ext as *mut Ext, at as *mut Interface);
        // SAFETY: both exist until the thread ends.
        unsafe {
            let refused = fetch(1, [PMID].as_mut_ptr(), &mut null_mut(), ext);
            (*ext).end_context.unwrap()(7);
            // The interface may be started again, with another agent.
            init::<Fragile<ELSEWHERE>>(interface);
            assert_ne!((*interface).ext, ext);
            (refused, fetched(&*interface).is_ok())
        }
    });
    assert_eq!(other.join().unwrap(), (Error::THREAD.code(), true));
    assert_eq!([&CLOSED, &DROPPED].map(|counts| of(counts, ELSEWHERE).load(Ordering::Relaxed)), [0, 0]);
    interface.ext = ext as *mut Ext;
    assert!(fetched(&interface).is_ok());
}

/// pmcd calls the same function for each interface, without identifying the interface.
#[test]
fn two_hosts_of_an_agent_hear_once_of_a_client_that_has_gone() {
    let hosts = [started::<NOWHERE>(), started::<NOWHERE>()];
    for round in 1..4 {
        for host in &hosts {
            // SAFETY: this is what pmcd does.
            unsafe { (*host.ext).context = 7 };
            assert!(fetched(host).is_ok());
        }
        // SAFETY: this is the same call as pmcd's.
        hosts.iter().for_each(|host| unsafe { (*host.ext).end_context.unwrap()(7) });
        assert_eq!(of(&CLOSED, NOWHERE).load(Ordering::Relaxed), 2 * round);
    }
}

#[test]
fn no_panic_gets_out() {
    assert_eq!(started::<OPEN>().status, Error::GENERIC.code());
    assert_eq!(fetched(&started::<REFRESH>()), Err(Error::GENERIC));
    assert_eq!(fetched(&started::<FETCH>()), Err(Error::GENERIC));
    let done = started::<DONE>();
    assert!(fetched(&done).is_ok() && fetched(&done).is_ok());
    let close = started::<CLOSE>();
    // SAFETY: this is the same call as pmcd's.
    unsafe { (*close.ext).end_context.unwrap()(1) };
    assert!(fetched(&close).is_ok());
    let mut old = started::<DROP>();
    assert!(fetched(&old).is_ok());
    // SAFETY: this is what pmcd does when it restarts an agent.
    unsafe { init::<Fragile<DROP>>(&mut *old) };
    assert_eq!((of(&DROPPED, DROP).load(Ordering::Relaxed), old.status), (1, Error::GENERIC.code()));
}

#[test]
fn null_pointers_and_negative_counts() {
    let interface = started::<0>();
    let ext = interface.ext;
    // SAFETY: there is room for every requested answer.
    unsafe {
        init::<Fragile<0>>(null_mut());
        let (mut pmid, mut names, mut statuses, mut result) = (0, null_mut(), null_mut(), null_mut());
        assert_eq!(interface.profile.unwrap()(null(), ext), 0);
        assert_eq!(interface.profile.unwrap()(null(), null_mut()), Error::GENERIC.code());
        assert!(interface.fetch.unwrap()(-1, null_mut(), &mut result, ext) < 0);
        assert!(interface.fetch.unwrap()(0, null_mut(), &mut result, ext) < 0);
        assert_eq!(interface.store.unwrap()(null_mut(), ext), Error::BADSTORE.code());
        assert_eq!(interface.id.unwrap()(null(), &mut pmid, ext), Error::NAME.code());
        assert_eq!(interface.children.unwrap()(null(), 0, &mut names, &mut statuses, ext), Error::NAME.code());
        assert_eq!(interface.attribute.unwrap()(1, 11, null(), 5, ext), 0);
        assert_eq!(interface.attribute.unwrap()(1, 11, c"".as_ptr(), -5, ext), 0);
        assert!(names.is_null() && statuses.is_null() && result.is_null());
    }
    assert!(fetched(&interface).is_ok());
}

/// If the program does not exist, a process that pmcd has forked to start an agent ends by itself.
#[test]
fn the_end_of_a_forked_process_is_not_that_of_the_agents() {
    let interface = started::<0>();
    // SAFETY: the child only looks whether anything is dropped.
    match unsafe { nix::unistd::fork() }.unwrap() {
        nix::unistd::ForkResult::Child => {
            let dropped = of(&DROPPED, 0).load(Ordering::Relaxed);
            end_all();
            let same = of(&DROPPED, 0).load(Ordering::Relaxed) == dropped;
            // SAFETY: nothing else is to run here.
            unsafe { libc::_exit(c_int::from(!same)) }
        }
        nix::unistd::ForkResult::Parent { child } => {
            let ended = nix::sys::wait::waitpid(child, None).unwrap();
            assert_eq!(ended, nix::sys::wait::WaitStatus::Exited(child, 0));
        }
    }
    assert!(fetched(&interface).is_ok());
}
