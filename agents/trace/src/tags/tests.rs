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

/// The floor is 10 names.
fn with_floors() -> Tags {
    Tags::new(Window::new(Duration::from_secs(5), 5), Limits { names: 1280, names_each: 320, ..Limits::default() })
}

#[test]
fn accounts_within_their_floor_have_all_their_names_beside_hostile_ones() {
    let mut tags = with_floors();
    points(&mut tags, TWO, std::iter::once("own old".to_owned()));
    for n in 0..20 {
        points(&mut tags, host(n), (0..500).map(|name| format!("host {n} {name}")));
    }
    // Two hosts have as many names as one may have, and the others their floor at least.
    assert_eq!(["host 0 ", "host 1 ", "host 19 "].map(|prefix| counts(&tags, prefix).len()), [320, 320, 10]);
    assert_eq!(tags.names.refused(), 20 * 500 - counts(&tags, "host").len() as u64);
    points(&mut tags, TWO, (0..9).map(|name| format!("own {name}")));
    assert_eq!(counts(&tags, "own").len(), 10);
    // What is beyond the floor is refused, and what there is goes on.
    points(&mut tags, TWO, ["own more", "own old"].map(str::to_owned).into_iter());
    assert_eq!((counts(&tags, "own more"), counts(&tags, "own old")[0].2), (vec![], 2));
}

/// A hostile host that guesses the tags of applications, and uses them continuously, cannot make applications lose
/// tags.
#[test]
fn tags_of_applications_stay_whoever_has_introduced_them() {
    let mut tags = with_floors();
    let applications = [2, 3, 4].map(Account::User);
    let own = |of: Account| (0..5).map(move |n| format!("own {of} {n}"));
    let all = || applications.into_iter().flat_map(own);
    points(&mut tags, ONE, all());
    applications.iter().for_each(|account| points(&mut tags, *account, own(*account)));
    points(&mut tags, ONE, all().chain((0..500).map(|n| format!("many {n}"))));
    for n in 0..10 {
        at(&mut tags, 2 + u64::from(n));
        points(&mut tags, host(n), (0..500).map(|name| format!("host {n} {name}")));
    }
    let expected: Vec<_> = all().zip(1..).map(|(name, number)| (number, name, 3)).collect();
    assert_eq!(counts(&tags, "own"), expected);
    // Applications are charged only for what they introduce.
    assert_eq!(applications.map(|account| tags.names.of(&account)), [0; 3]);
}

#[test]
fn bytes_of_names_have_a_limit() {
    let limits = Limits { names: 100, ..Limits::default() };
    let mut tags = Tags::new(Window::new(Duration::from_secs(5), 5), limits);
    // Each byte that is not UTF-8 is escaped as four bytes.
    (0..100_u8).for_each(|n| tags.add(ONE, &data(Kind::Point, &[[n | 128; 200].as_slice(), &[n]].concat(), -1.0)));
    let bytes: usize = names(tags.of(Kind::Point)).iter().map(|(_, name)| name.len() + 8).sum();
    assert!((2500..=6400).contains(&bytes), "{bytes}");
}

#[test]
fn names_are_given_back_and_numbers_are_not() {
    let limits = Limits { names: 4, names_each: 2, forget_time: Duration::from_secs(100), ..Limits::default() };
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
    assert_eq!((tags.names.of(&ONE), tags.dormant.len()), (2 * SHORT, 0));
    at(&mut tags, 1000);
    assert_eq!(names(tags.of(Kind::Point)), []);
    assert_eq!(tags.names.accounts().count(), 0);
    assert_eq!(mark(&mut tags, "b"), "5 b");
}
