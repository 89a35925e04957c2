//! Tests of the accounts of users.

use super::*;

const SMALL: Limits = Limits {
    user_files: 10,
    user_memory: 1000,
    user_values: 100,
    user_work: 50,
    work: 100,
    files: 20,
    memory: 2000,
    values: 200,
    file_bytes: 1 << 20,
    names: 100,
};

fn accounts() -> Accounts {
    Accounts { limits: SMALL, ..Accounts::default() }
}

/// Adds files as long as the limits or a larger user leave room, and returns how many the user has.
fn take_all(accounts: &mut Accounts, uid: u32, cost: Cost) -> u64 {
    loop {
        match (accounts.check(uid, 1, cost), accounts.larger(uid, 1, cost)) {
            (Ok(()), _) => accounts.add(uid, 1, cost),
            (Err(_), Some((largest, _))) => accounts.remove(largest, 1, cost),
            (Err(_), None) => return accounts.users[&uid].files,
        }
    }
}

#[test]
fn a_user_who_has_used_up_a_quota_takes_nothing_from_another() {
    let mut accounts = accounts();
    let cost = Cost { memory: 10, values: 1 };
    // A user who comes later gets as much as the others.
    assert_eq!([1, 2].map(|uid| take_all(&mut accounts, uid, cost)), [10, 10]);
    assert_eq!(take_all(&mut accounts, 3, cost), 6);
    assert_eq!([1, 2].map(|uid| accounts.users[&uid].files), [7, 7]);
    assert_eq!([1, 2, 3, 4].map(|uid| take_all(&mut accounts, uid, cost)), [7, 7, 6, 5]);
    assert_eq!(accounts.larger(4, 1, cost), None, "another file would make it the largest user");
    assert_eq!(accounts.check(1, 5, cost), Err(Limit::Files));
    assert_eq!(accounts.check(9, 0, Cost { memory: 1001, values: 0 }), Err(Limit::Memory));
    assert_eq!(accounts.check(9, 0, Cost { memory: 0, values: 101 }), Err(Limit::Values));
    assert_eq!(accounts.larger(9, 0, Cost { memory: 0, values: 101 }), None);
    assert_eq!(accounts.check(9, 0, Cost { memory: 0, values: 20 }), Ok(()));
}

#[test]
fn only_the_exceeded_limit_counts() {
    let mut accounts = accounts();
    // The largest part of any limit is that of the first user, who has the fewest files.
    accounts.add(1, 1, Cost { memory: 900, values: 90 });
    accounts.add(2, 9, Cost { memory: 100, values: 10 });
    accounts.add(3, 10, Cost { memory: 0, values: 0 });
    assert_eq!(accounts.larger(4, 1, Cost::default()), Some((3, Limit::Files)));
    accounts.remove(3, 10, Cost::default());
    accounts.add(3, 5, Cost { memory: 700, values: 0 });
    assert_eq!(accounts.larger(4, 1, Cost { memory: 400, values: 0 }), Some((1, Limit::Memory)));
    assert_eq!(accounts.larger(4, 1, Cost { memory: 0, values: 10 }), None, "there is room");
}

#[test]
fn nobody_loses_files_for_one_that_gets_no_room() {
    let mut accounts = accounts();
    accounts.add(1, 4, Cost { memory: 600, values: 90 });
    accounts.add(2, 4, Cost { memory: 500, values: 90 });
    accounts.add(3, 4, Cost { memory: 500, values: 0 });
    // With parts as large as this, there would be room for three users only.
    assert_eq!(accounts.larger(4, 1, Cost { memory: 510, values: 0 }), None);
    assert_eq!(accounts.larger(4, 1, Cost { memory: 490, values: 0 }), Some((1, Limit::Memory)));
    // There could be room for its memory, but not for its values.
    accounts.add(3, 0, Cost { memory: 0, values: 10 });
    assert_eq!(accounts.larger(4, 1, Cost { memory: 490, values: 88 }), None);
    assert_eq!(accounts.larger(4, 1, Cost { memory: 490, values: 40 }), Some((1, Limit::Memory)));
}

#[test]
fn work_is_paid_for_by_later_requests() {
    let mut accounts = accounts();
    accounts.work(1, 120);
    assert_eq!((accounts.has_time(1), accounts.has_time(2)), (false, true));
    let requests = (1..).find(|_| {
        accounts.begin();
        accounts.has_time(1)
    });
    assert_eq!(requests, Some(2));
    accounts.begin();
    assert!(accounts.work.is_empty(), "nobody is remembered for nothing");
}

#[test]
fn open_files_are_shared() {
    let mut accounts = accounts();
    for (uid, files) in [(1, 100), (2, 3), (3, 50)] {
        accounts.add(uid, files, Cost::default());
    }
    let handles = accounts.handles(63);
    assert_eq!([1, 2, 3].map(|uid| handles[&uid]), [30, 3, 30]);
    assert_eq!(accounts.handles(1000)[&1], 100);
}
