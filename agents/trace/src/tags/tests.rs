use super::*;

const ONE: Account = Account::User(1);
const TWO: Account = Account::User(2);

fn of_period(period: u64) -> Tags {
    Tags::new(Window::new(Duration::from_secs(period), 5), Limits::default())
}

fn data(kind: Kind, tag: &[u8], value: f64) -> Data<'_> {
    Data { kind, reply: false, value, tag }
}

fn names(tagged: &Tagged) -> Vec<(u32, String)> {
    let mut names = Vec::new();
    Instances::each(tagged, &mut |inst, name| names.push((inst.word(), name.to_owned())));
    assert_eq!(names.len(), tagged.each().count());
    names
}

/// Sets the time of the tags, in seconds since their start.
fn at(tags: &mut Tags, second: u64) {
    tags.set_now(tags.start + Duration::from_secs(second));
}

#[test]
fn the_last_complete_buckets_count() {
    let mut tags = of_period(5);
    for (second, value) in [(0, 4.0), (0, 2.0), (2, 8.0), (9, 1.0)] {
        at(&mut tags, second);
        tags.add(ONE, &data(Kind::Transact, b"tag", value));
    }
    let mut seen = Vec::new();
    for second in [9, 10, 14, 15] {
        at(&mut tags, second);
        let tag = Tagged::each(tags.of(Kind::Transact)).next().unwrap().1;
        seen.push(tag.recent(&tags.window).map(|b| (b.count, b.min, b.max, b.sum)));
    }
    assert_eq!(seen, [None, Some((1, 1.0, 1.0, 1.0)), Some((1, 1.0, 1.0, 1.0)), None]);

    let mut tags = of_period(5);
    let mut seen = Vec::new();
    for (second, value) in [(0, 4.0), (0, 2.0), (2, 8.0), (5, 0.5), (6, 0.5)] {
        at(&mut tags, second);
        tags.add(ONE, &data(Kind::Transact, b"tag", value));
        let tag = Tagged::each(tags.of(Kind::Transact)).next().unwrap().1;
        seen.push(tag.recent(&tags.window).map(|b| (b.count, b.min, b.max, b.sum)));
    }
    let all = Some((3, 2.0, 8.0, 14.0));
    assert_eq!(seen, [None, None, Some((2, 2.0, 4.0, 6.0)), all, Some((2, 0.5, 8.0, 8.5))]);
    let tag = Tagged::each(tags.of(Kind::Transact)).next().unwrap().1;
    assert_eq!((tag.count, tag.total, tag.last), (5, 15.0, 0.5));
    assert!(tag.buckets.len() <= 6);
}

#[test]
fn numbers_outlive_a_reset() {
    let mut tags = of_period(60);
    ["foo", "bar", "eek"].iter().for_each(|tag| tags.add(ONE, &data(Kind::Point, tag.as_bytes(), -1.0)));
    tags.add(ONE, &data(Kind::Observe, b"foo", 1.0));
    tags.reset();
    assert_eq!(names(tags.of(Kind::Point)), []);
    assert_eq!(tags.of(Kind::Point).lookup("foo"), None);
    ["eek", "new", "bar"].iter().for_each(|tag| tags.add(ONE, &data(Kind::Point, tag.as_bytes(), -1.0)));
    let point = tags.of(Kind::Point);
    assert_eq!(names(point), [(2, "bar".into()), (3, "eek".into()), (4, "new".into())]);
    assert_eq!((point.name(Inst::new(1)), point.name(Inst::new(4))), (None, Some("new")));
    assert_eq!((point.lookup("new"), point.lookup("foo")), (Some(Inst::new(4)), None));
    assert_eq!(Tagged::each(point).map(|(_, tag)| tag.count).collect::<Vec<_>>(), [1, 1, 1]);
}

#[test]
fn names_are_found_by_their_first_word() {
    let mut tags = of_period(60);
    for tag in ["third sleep", "third"] {
        tags.add(ONE, &data(Kind::Point, tag.as_bytes(), -1.0));
        assert_eq!(
            tags.of(Kind::Point).lookup("third").map(Inst::word),
            Some(names(tags.of(Kind::Point)).len() as u32)
        );
    }
}

#[test]
fn the_oldest_name_with_a_first_word_is_found_by_it() {
    let mut tags = of_period(60);
    for tag in ["sleep long", "sleep short"] {
        tags.add(ONE, &data(Kind::Point, tag.as_bytes(), -1.0));
        assert_eq!(tags.of(Kind::Point).lookup("sleep"), Some(Inst::new(1)));
    }
}

#[test]
fn bytes_that_are_no_text_have_a_name_of_their_own() {
    let mut tags = of_period(60);
    let given = [&b"a\xff"[..], b"a\xfe", "a\u{fffd}".as_bytes(), b"a\xff", b"a\nb"];
    for tag in given {
        tags.add(ONE, &data(Kind::Point, tag, -1.0));
    }
    let point = tags.of(Kind::Point);
    let expected =
        [(1, "a\\xff"), (2, "a\\xfe"), (3, "a\u{fffd}"), (4, "a\\x0ab")].map(|(n, name)| (n, name.to_owned()));
    assert_eq!(names(point), expected);
    assert_eq!(expected.map(|(n, name)| point.lookup(&name) == Some(Inst::new(n))), [true; 4]);
    assert_eq!(Tagged::each(point).map(|(_, tag)| tag.count).collect::<Vec<_>>(), [2, 1, 1, 1]);
}

/// Count, total, recent total and recent maximum of a transaction tag after a valid transaction and `others`.
fn with(others: impl FnOnce(&mut Tags)) -> (u64, f64, f64, f64) {
    let mut tags = of_period(5);
    tags.add(ONE, &data(Kind::Transact, b"tag", 2.0));
    others(&mut tags);
    at(&mut tags, 1);
    let tag = Tagged::each(tags.of(Kind::Transact)).next().unwrap().1;
    let recent = tag.recent(&tags.window).unwrap();
    (tag.count, tag.total, recent.sum, recent.max)
}

#[test]
fn values_that_make_no_sense_spoil_no_tag() {
    const MAX: f64 = f64::MAX;
    let honest = (1, 2.0, 2.0, 2.0);
    for bad in [f64::NAN, -f64::NAN, f64::INFINITY, f64::NEG_INFINITY, MAX, 1e300, 3.2e7] {
        let add = |tags: &mut Tags| (0..3).for_each(|_| tags.add(TWO, &data(Kind::Transact, b"tag", bad)));
        assert_eq!(with(add), honest, "{bad}");
    }
    // Clocks that were set back: these transactions count, with a duration of 0.
    for none in [-1.0, -MAX, -0.0, 5e-324] {
        assert_eq!(with(|tags| tags.add(TWO, &data(Kind::Transact, b"tag", none))), (2, 2.0, 2.0, 2.0), "{none}");
    }
    for kind in [Kind::Observe, Kind::Counter] {
        let mut tags = of_period(5);
        for value in [1.0, MAX, MAX, 4.0, f64::NAN, f64::INFINITY] {
            tags.add(TWO, &data(kind, b"tag", value));
        }
        let tag = Tagged::each(tags.of(kind)).next().unwrap().1;
        assert_eq!((tag.count, tag.last), (4, 4.0));
        assert_eq!((tag.total, tags.values.count()), (0.0, 2));
    }
}

#[test]
fn long_transactions_swallow_no_short_ones() {
    let mut tags = of_period(5);
    // The total in hundredths of a second is too large for a double.
    let change = Change { count: 1 << 30, total: 1.4e16, times: None, last: None };
    tags.change(TWO, Kind::Transact, b"tag", &change, None);
    (0..100_000).for_each(|_| tags.add(ONE, &data(Kind::Transact, b"tag", 0.01)));
    let tag = Tagged::each(tags.of(Kind::Transact)).next().unwrap().1;
    assert!((tag.total - 1.4e16 - 1000.0).abs() <= 2.0, "{}", tag.total - 1.4e16);
}

#[test]
fn what_files_cannot_have_spoils_no_tag() {
    let good = Change { count: 1, total: 2.0, times: Some((2.0, 2.0)), last: None };
    let change = |change: Change| {
        move |tags: &mut Tags| {
            tags.change(TWO, Kind::Transact, b"tag", &change, Some(Instant::now()));
        }
    };
    assert_eq!(with(change(good)), (2, 4.0, 4.0, 2.0));
    for bad in [
        Change { count: u64::MAX, ..good },
        Change { count: 0, ..good },
        Change { total: f64::NAN, ..good },
        Change { total: f64::INFINITY, ..good },
        Change { total: 1e9, ..good },
        Change { total: -1.0, ..good },
    ] {
        assert_eq!(with(change(bad)), (1, 2.0, 2.0, 2.0), "{bad:?}");
    }
    for times in [(0.0, f32::INFINITY), (f32::NAN, f32::NAN), (-1.0, 2.0), (0.0, f32::MAX)] {
        assert_eq!(with(change(Change { times: Some(times), ..good })), (2, 4.0, 4.0, 2.0), "{times:?}");
    }
}

#[test]
fn a_last_value_of_the_future_gives_way_to_the_next() {
    let mut tags = of_period(5);
    let mut change = |when, value| {
        let change = Change { count: 1, total: 0.0, times: None, last: Some((when, value)) };
        tags.change(ONE, Kind::Observe, b"tag", &change, None);
        Tagged::each(tags.of(Kind::Observe)).next().unwrap().1.last
    };
    assert_eq!(change(u64::MAX, 7.0), 7.0);
    // Waits until the clock has advanced.
    let later = trace::shared_memory::now();
    while trace::shared_memory::now() <= later {}
    assert_eq!(change(u64::MAX, f64::NAN), 7.0);
    assert_eq!(change(trace::shared_memory::now(), 8.0), 8.0);
}

#[test]
fn one_account_cannot_use_up_the_names_of_others() {
    let limits = Limits { names: 100, names_each: 80, ..Limits::default() };
    let mut tags = Tags::new(Window::new(Duration::from_secs(5), 5), limits);
    tags.add(TWO, &data(Kind::Observe, b"honest", 1.0));
    let many = |tags: &mut Tags, account, what: u8| {
        (0..1000).for_each(|n| tags.add(account, &data(Kind::Point, format!("{what} {n}").as_bytes(), -1.0)));
        tags.of(Kind::Point).each().count()
    };
    assert_eq!(many(&mut tags, ONE, 0), 80);
    for host in 1..10 {
        assert_eq!(many(&mut tags, Account::Host([10, 0, 0, host].into()), host), 99);
    }
    // The budget is used up, but other accounts still get their share.
    (0..5).for_each(|n| tags.add(TWO, &data(Kind::Observe, &[b'a' + n], 1.0)));
    assert_eq!(names(tags.of(Kind::Observe)).len(), 6);
    assert!((9000..10_000).contains(&tags.names.count()), "{}", tags.names.count());
    // Existing names count trace events of any account.
    tags.add(ONE, &data(Kind::Observe, b"honest", 2.0));
    assert_eq!(Tagged::each(tags.of(Kind::Observe)).next().unwrap().1.count, 2);
}

#[test]
fn what_has_not_come_for_longest_gives_way() {
    let limits = Limits { names: 4, ..Limits::default() };
    let mut tags = Tags::new(Window::new(Duration::from_secs(5), 5), limits);
    for (second, name) in [b"a", b"b", b"c", b"d", b"a"].into_iter().enumerate() {
        at(&mut tags, second as u64);
        tags.add(ONE, &data(Kind::Point, name, -1.0));
    }
    tags.add(TWO, &data(Kind::Point, b"e", -1.0));
    let left: Vec<String> = names(tags.of(Kind::Point)).into_iter().map(|(_, name)| name).collect();
    assert_eq!(left, ["a", "c", "d", "e"]);
}

fn host(number: u8) -> Account {
    Account::Host([10, 0, 0, number].into())
}

fn points(tags: &mut Tags, account: Account, names: impl Iterator<Item = String>) {
    names.for_each(|name| tags.add(account, &data(Kind::Point, name.as_bytes(), -1.0)));
}

/// Number, name and count of each point tag that begins with `prefix`.
fn counts(tags: &Tags, prefix: &str) -> Vec<(u32, String, u64)> {
    let all = Tagged::each(tags.of(Kind::Point)).map(|(inst, tag)| (inst.word(), tag.name().to_owned(), tag.count));
    all.filter(|(_, name, _)| name.starts_with(prefix)).collect()
}

/// A hostile host that guesses the tags of applications, and uses them continuously, cannot make applications lose
/// tags.
#[test]
fn tags_of_applications_stay_when_the_host_that_introduced_them_gives_back() {
    let limits = Limits { names: 100, ..Limits::default() };
    let mut tags = Tags::new(Window::new(Duration::from_secs(5), 5), limits);
    let applications = [2, 3, 4].map(Account::User);
    let own = |of: Account| (0..5).map(move |n| format!("own {of} {n}"));
    let all = || applications.into_iter().flat_map(own);
    points(&mut tags, ONE, all());
    applications.iter().for_each(|account| points(&mut tags, *account, own(*account)));
    points(&mut tags, ONE, all().chain((0..85).map(|n| format!("many {n}"))));
    assert_eq!(tags.budget.of(ONE), 100 * SHORT);
    // Each of them gets its share of the names.
    for n in 0..10 {
        at(&mut tags, 2 + u64::from(n));
        points(&mut tags, host(n), (0..100).map(|name| format!("host {n} {name}")));
        points(&mut tags, ONE, (0..100).map(|name| format!("more {n} {name}")));
    }
    let expected: Vec<_> = all().zip(1..).map(|(name, number)| (number, name, 3)).collect();
    assert_eq!(counts(&tags, "own"), expected);
    // Applications are charged for no more than their use, and still get their share.
    let charges = applications.map(|account| tags.budget.of(account) / SHORT);
    assert!(tags.budget.of(ONE) < 10 * SHORT && charges.iter().all(|own| *own <= 5), "{charges:?}");
    points(&mut tags, TWO, std::iter::once("own new".to_owned()));
    assert_eq!(counts(&tags, "own new").len(), 1);
}

/// Hosts that use each other's tags do not keep the whole budget.
#[test]
fn shared_tags_of_several_hosts_leave_others_their_share() {
    let limits = Limits { names: 100, ..Limits::default() };
    let mut tags = Tags::new(Window::new(Duration::from_secs(5), 5), limits);
    for n in 0..10 {
        points(&mut tags, host(n), (0..100).map(|name| format!("many {name}")));
    }
    points(&mut tags, ONE, (0..4).map(|name| format!("own {name}")));
    assert_eq!((counts(&tags, "own").len(), tags.budget.of(ONE)), (4, 4 * SHORT));
    assert!(counts(&tags, "many").len() >= 80);
    for n in 20..30 {
        points(&mut tags, host(n), (0..100).map(|name| format!("host {n} {name}")));
    }
    assert_eq!(counts(&tags, "own").len(), 4);
}

#[test]
fn tags_without_other_users_give_way_first() {
    let limits = Limits { names: 120, ..Limits::default() };
    let mut tags = Tags::new(Window::new(Duration::from_secs(5), 5), limits);
    let shared = || (0..40).map(|name| format!("shared {name}"));
    points(&mut tags, ONE, shared());
    points(&mut tags, TWO, shared().chain((0..40).map(|name| format!("own {name}"))));
    at(&mut tags, 9);
    points(&mut tags, ONE, (0..40).map(|name| format!("many {name}")));
    points(&mut tags, host(1), (0..10).map(|name| format!("host {name}")));
    assert_eq!(["shared", "own", "host"].map(|prefix| counts(&tags, prefix).len()), [40, 40, 10]);
}

#[test]
fn another_user_is_charged_when_the_first_one_no_longer_uses_a_tag() {
    let limits = Limits { names: 2, forget_time: Duration::from_secs(100), ..Limits::default() };
    let mut tags = Tags::new(Window::new(Duration::from_secs(5), 5), limits);
    let shared = || std::iter::once("shared".to_owned());
    [ONE, host(0), TWO, host(1)].into_iter().for_each(|account| points(&mut tags, account, shared()));
    at(&mut tags, 90);
    points(&mut tags, TWO, shared());
    at(&mut tags, 150);
    assert_eq!((counts(&tags, ""), tags.budget.of(ONE)), (vec![(1, "shared".to_owned(), 5)], 0));
    assert_eq!((tags.budget.of(TWO), tags.budget.accounts()), (SHORT, 1));
    at(&mut tags, 300);
    assert_eq!((counts(&tags, ""), tags.budget.accounts()), (vec![], 0));
}

#[test]
fn a_tag_that_all_its_users_have_no_room_for_is_removed() {
    let limits = Limits { names: 10, names_each: 2, forget_time: Duration::from_secs(100), ..Limits::default() };
    let mut tags = Tags::new(Window::new(Duration::from_secs(5), 5), limits);
    points(&mut tags, ONE, ["a".to_owned(), "b".to_owned()].into_iter());
    points(&mut tags, TWO, ["c".to_owned(), "d".to_owned()].into_iter());
    at(&mut tags, 60);
    points(&mut tags, TWO, "abcd".chars().map(String::from));
    at(&mut tags, 120);
    assert_eq!(counts(&tags, "").iter().map(|(number, ..)| *number).collect::<Vec<_>>(), [3, 4]);
    assert_eq!((tags.budget.of(ONE), tags.budget.of(TWO), tags.budget.accounts()), (0, 2 * SHORT, 1));
}

#[test]
fn bytes_of_names_have_a_limit() {
    let limits = Limits { names: 100, ..Limits::default() };
    let mut tags = Tags::new(Window::new(Duration::from_secs(5), 5), limits);
    // Each byte that is not UTF-8 is escaped as four bytes.
    (0..100_u8).for_each(|n| tags.add(ONE, &data(Kind::Point, &[[n | 128; 200].as_slice(), &[n]].concat(), -1.0)));
    let bytes: usize = names(tags.of(Kind::Point)).iter().map(|(_, name)| name.len() + 8).sum();
    assert!((5000..=6400).contains(&bytes), "{bytes}");
}

#[test]
fn names_are_given_back_and_numbers_are_not() {
    let limits = Limits { names: 2, forget_time: Duration::from_secs(100), ..Limits::default() };
    let mut tags = Tags::new(Window::new(Duration::from_secs(5), 5), limits);
    let mark = |tags: &mut Tags, name: &str| {
        tags.add(ONE, &data(Kind::Point, name.as_bytes(), -1.0));
        names(tags.of(Kind::Point)).into_iter().map(|(n, name)| format!("{n} {name}")).collect::<Vec<_>>().join(", ")
    };
    at(&mut tags, 1);
    assert_eq!(mark(&mut tags, "a"), "1 a");
    assert_eq!(mark(&mut tags, "b"), "1 a, 2 b");
    assert_eq!(mark(&mut tags, "c"), "1 a, 2 b");
    at(&mut tags, 60);
    assert_eq!(mark(&mut tags, "b"), "1 a, 2 b");
    // The first name is forgotten by now.
    at(&mut tags, 115);
    assert_eq!(mark(&mut tags, "c"), "2 b, 3 c");
    assert_eq!(mark(&mut tags, "a"), "2 b, 3 c");
    // After a reset, names keep their numbers if they are used again. New names replace the others.
    tags.reset();
    assert_eq!(mark(&mut tags, "c"), "3 c");
    assert_eq!(mark(&mut tags, "a"), "3 c, 4 a");
    assert_eq!((tags.budget.of(ONE), tags.dormant.len()), (2 * SHORT, 0));
    at(&mut tags, 1000);
    assert_eq!(names(tags.of(Kind::Point)), []);
    assert_eq!((tags.budget.accounts(), tags.dormant.len()), (0, 0));
    assert_eq!(mark(&mut tags, "b"), "5 b");
}
