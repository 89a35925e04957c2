use std::fs;
use std::path::Path;

use pmapi::{Domain, Serial};
use proptest::prelude::*;

use super::*;

fn indom() -> InDom {
    InDom::new(Domain::new(253).unwrap(), Serial::new(1))
}

fn in_memory<T>() -> Cache<T> {
    Cache::new(indom(), &Config::new(b"", []))
}

/// Creates a directory with a file of the domain, and a configuration that locates it.
fn home(text: &str) -> (tempfile::TempDir, PathBuf, Config) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config/pmda/253.1");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, text).unwrap();
    let config = Config::new(b"", [("PCP_VAR_DIR".into(), dir.path().into())]);
    (dir, file, config)
}

fn read(file: &Path) -> String {
    fs::read_to_string(file).unwrap()
}

#[test]
fn numbers_stay_over_restarts() {
    let (_dir, file, config) = home("2 0 2147483647\n5 1 hour\n7 1 [0aff] min of hour\n");
    let mut cache = Cache::new(indom(), &config).persistent();
    assert_eq!((cache.active_len(), cache.len(), cache.lookup("hour")), (0, 2, None));
    assert_eq!(cache.store("sec", 's'), Ok(Inst::new(8)));
    assert_eq!(cache.store("hour", 'h'), Ok(Inst::new(5)));
    assert!(cache.active().eq([(Inst::new(5), "hour", &'h'), (Inst::new(8), "sec", &'s')]));
    assert_eq!(cache.lookup("hour"), Some(Inst::new(5)));
    assert_eq!(cache.keyed(&[10, 255]).map(|i| (i.name, i.is_active)), Some(("min of hour", false)));
    cache.save().unwrap();
    let text = read(&file);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "2 0 2147483647");
    assert!(lines[1].starts_with("5 ") && lines[1].ends_with(" hour") && !lines[1].starts_with("5 1 "));
    assert_eq!(lines[2], "7 1 [0aff] min of hour");
    assert!(lines[3].starts_with("8 ") && lines[3].ends_with(" sec"));
    // Known instances do not change, and new ones are hidden.
    fs::write(&file, "2 0 2147483647\n5 1 hour\n6 1 hour\n7 1 other\n9 1 new\n").unwrap();
    cache.load().unwrap();
    assert_eq!((cache.active_len(), cache.len()), (2, 4));
}

/// What was once large costs later requests nothing.
#[test]
fn memory_and_walks_are_those_of_the_instances_that_there_are() {
    let mut cache = in_memory();
    for n in 0..1000_u32 {
        cache.store_key(&format!("i{n}"), &n.to_be_bytes(), n).unwrap();
    }
    let kept: Vec<(Inst, u32)> = cache.values().filter(|(_, n)| **n % 100 == 7).map(|(inst, n)| (inst, *n)).collect();
    let culled: Vec<Inst> = cache.values().filter(|(_, n)| **n % 100 != 7).map(|(inst, _)| inst).collect();
    culled.iter().for_each(|inst| assert!(cache.cull(*inst).is_some() && cache.get(*inst).is_none()));
    assert!(cache.table.entries.len() <= 4 * FEW && cache.table.states.len() == cache.table.entries.len());
    assert!(cache.table.entries.capacity() < 1000 && cache.table.names.capacity() < 1000);
    assert!(cache.values().map(|(inst, n)| (inst, *n)).eq(kept.clone()));
    for (inst, n) in kept {
        assert_eq!(cache.named(&format!("i{n}")).map(|found| found.inst), Some(inst));
        assert_eq!(cache.keyed(&n.to_be_bytes()).and_then(|found| found.value), Some(&n));
        assert_eq!(cache.store_key(&format!("i{n}"), &n.to_be_bytes(), n + 1), Ok(inst));
    }
    cache.cull_all();
    assert_eq!((cache.len(), cache.values().count()), (0, 0));
    cache.store("again", 1).unwrap();
    assert_eq!(cache.active_len(), 1);
}

#[test]
fn a_link_in_place_of_the_file_is_not_followed() {
    let (dir, file, config) = home("");
    let secret = dir.path().join("secret");
    fs::write(&secret, "2 0 2147483647\n5 1 secret\n").unwrap();
    fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink(&secret, &file).unwrap();
    let mut cache = Cache::new(indom(), &config).persistent();
    assert_eq!(cache.len(), 0);
    assert!(matches!(cache.load(), Err(CacheFileError::Io { .. })));
    cache.store("own", ()).unwrap();
    cache.save().unwrap();
    assert!(!fs::symlink_metadata(&file).unwrap().is_symlink() && !read(&file).contains("secret"));
}

#[test]
fn names_match_up_to_their_first_space() {
    let mut cache = in_memory();
    let inst = cache.store("1 minute", 1).unwrap();
    assert_eq!(cache.store("1", 2), Ok(inst));
    assert_eq!(cache.lookup("1"), Some(inst));
    assert_eq!(cache.lookup("1 minute"), Some(inst));
    assert_eq!(cache.lookup("1 hour"), Some(inst));
    assert!(matches!(cache.store("1 hour", 3), Err(CacheError::Clash { .. })));
    assert!(matches!(cache.store("", 3), Err(CacheError::Name { .. })));
    assert!(matches!(cache.store("a\nb", 3), Err(CacheError::Name { .. })));
    assert!(matches!(cache.store("\ta", 3), Err(CacheError::Name { .. })));
    let mut strings = in_memory().whole_names();
    for (text, inst) in [("", 0), ("a b", 1), ("a", 2), ("a c", 3), ("a b", 1)] {
        assert_eq!(strings.store(text, ()), Ok(Inst::new(inst)));
    }
    assert_eq!(strings.lookup("a"), Some(Inst::new(2)));
}

#[test]
fn hidden_instances_keep_number_and_value() {
    let mut cache = in_memory();
    let a = cache.store("a", 1).unwrap();
    let b = cache.store("b", 2).unwrap();
    cache.hide_all();
    assert_eq!((cache.active_len(), cache.name(a), cache.get(b)), (0, None, None));
    assert_eq!(cache.store("b", 3), Ok(b));
    assert_eq!((cache.active_len(), cache.hide(b), cache.hide(b), cache.active_len()), (1, true, false, 0));
    assert_eq!(cache.named("b").map(|i| (i.inst, i.value, i.is_active)), Some((b, Some(&3), false)));
    assert_eq!(cache.activate_all(), 2);
    assert_eq!((cache.get(a), cache.get(b)), (Some(&1), Some(&3)));
    assert_eq!((cache.cull(a), cache.cull(a), cache.active_len(), cache.len()), (Some(1), None, 1, 1));
    assert_eq!(cache.instance(a), None);
    // Without `reuse`, a culled number is not used again.
    assert_eq!(cache.store("a", 4), Ok(Inst::new(2)));
    cache.reuse_numbers();
    assert_eq!(cache.store("c", 5), Ok(a));
    assert!(cache.active().map(|(_, name, _)| name).eq(["c", "b", "a"]));
}

#[test]
fn after_the_largest_number_the_lowest_free_one() {
    let (_dir, _, config) = home("2 0 3\n0 1 zero\n3 1 three\n");
    let mut cache = Cache::new(indom(), &config).persistent();
    assert_eq!(cache.store("x", 0), Ok(Inst::new(1)));
    assert_eq!(cache.store("y", 0), Ok(Inst::new(2)));
    assert_eq!(cache.store("z", 0), Err(CacheError::Full(indom())));
    assert_eq!(cache.resize(2), Err(CacheError::TooSmall { indom: indom(), max: 2, largest: 3 }));
    cache.resize(4).unwrap();
    assert_eq!(cache.store("z", 0), Ok(Inst::new(4)));
}

#[test]
fn a_key_has_one_name_and_a_name_one_key() {
    let mut cache = in_memory();
    let a = cache.store_key("a", b"key", 1).unwrap();
    assert_eq!(cache.store_key("a", b"key", 2), Ok(a));
    assert!(matches!(cache.store_key("a", b"other", 3), Err(CacheError::Key { .. })));
    assert!(matches!(cache.store_key("b", b"key", 3), Err(CacheError::Key { .. })));
    let b = cache.store_key("b", b"", 4).unwrap();
    assert_eq!(cache.keyed(b"b").map(|i| i.inst), Some(b));
    cache.cull(a);
    assert_eq!(cache.keyed(b"key"), None);
    assert_eq!(cache.store_key("c", b"key", 5), Ok(a));
    assert_eq!(cache.store("d", 6).map(Inst::word), Ok(0));
}

#[test]
fn a_name_in_brackets_is_no_key() {
    let (_dir, _, config) = home("");
    let mut cache = Cache::new(indom(), &config).persistent();
    cache.store("[ab] c", ()).unwrap();
    cache.save().unwrap();
    assert_eq!(Cache::<()>::new(indom(), &config).persistent().named("[ab] c").map(|i| i.key), Some(&b"[ab] c"[..]));
}

#[test]
fn unused_instances_are_purged() {
    let (_dir, file, config) = home("2 0 9\n0 1 long ago\n1 99999999999 just now\n");
    let mut cache = Cache::new(indom(), &config).persistent();
    cache.store("new", ()).unwrap();
    assert_eq!((cache.purge(Duration::from_secs(60)), cache.len()), (1, 2));
    cache.save().unwrap();
    assert!(!read(&file).contains("long"));
    // Without new instances only `sync` writes.
    fs::write(&file, "").unwrap();
    cache.save().unwrap();
    cache.store("new", ()).unwrap();
    cache.save().unwrap();
    assert_eq!(read(&file), "");
    cache.sync().unwrap();
    assert_eq!(read(&file).lines().count(), 3);
}

#[test]
fn a_link_in_the_place_of_its_file_is_not_followed() {
    let attacker = testkit::Attacker::swaps(["253.1", "253.1.new", ".253.1.new", "253.1.damaged"]);
    let mut cache = Cache::<()> { path: attacker.dir().join("253.1"), is_persistent: true, ..in_memory() };
    for n in 0..300 {
        cache.damaged = n % 10 == 0;
        cache.store(&format!("i{n}"), ()).unwrap();
        // Another thread may remove the temporary file at any time, but the file is always complete.
        let _ = cache.write();
        let _ = cache.load();
    }
    attacker.has_failed();
}

#[test]
fn what_is_no_file_is_not_waited_for() {
    let (_dir, file, config) = home("");
    fs::remove_file(&file).unwrap();
    nix::unistd::mkfifo(&file, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let mut cache = Cache::<()>::new(indom(), &config).persistent();
    assert!(matches!(cache.load(), Err(CacheFileError::Io { .. })));
    let sparse = fs::remove_file(&file).and_then(|()| fs::File::create(&file)).unwrap();
    sparse.set_len(file::LONGEST + 1).unwrap();
    assert!(matches!(cache.load(), Err(CacheFileError::Io { .. })));
    // It may have been valid. It is kept when the next one takes its place.
    cache.store("new", ()).unwrap();
    cache.save().unwrap();
    assert_eq!(fs::metadata(file.with_extension("1.damaged")).unwrap().len(), file::LONGEST + 1);
    assert!(fs::read_to_string(&file).unwrap().ends_with(" new\n"));
}

#[test]
fn a_file_that_could_not_be_read_is_not_written() {
    let (_dir, file, config) = home("2 0 9\n1 2 old\n");
    let mut cache = Cache::<()>::new(indom(), &config).whole_names().persistent();
    cache.resize(1000).unwrap();
    cache.longest = 1000;
    (0..100).for_each(|n| _ = cache.store(&format!("name{n}"), ()).unwrap());
    assert!(matches!(cache.save(), Err(CacheFileError::Io { .. })));
    assert_eq!(fs::read_to_string(&file).unwrap(), "2 0 9\n1 2 old\n");
}

#[test]
fn a_damaged_file_is_kept_and_the_rest_of_it_used() {
    let damages = [
        ("x\n1 2 y\n", 1, 0),
        ("3 0 1\n1 2 y\n", 1, 0),
        ("2 0\n", 1, 0),
        ("2 0 9\n1 2 y\nx y z\n3 4 z\n", 3, 2),
        ("2 0 9\n1 2\n", 2, 0),
        ("2 0 9\n1 2 [0\n", 2, 0),
        ("2 0 9\n1 2 [0g] x\n5 1 b\n", 2, 1),
        ("2 0 9\n1 2 [0] x\n", 2, 0),
        ("2 0 9\n\n1 2 x\n", 2, 1),
        ("2 0 9\n4294967296 2 x\n", 2, 0),
    ];
    for (text, line, size) in damages {
        let (_dir, file, config) = home(text);
        let aside = |n: &str| file.with_extension(format!("1.damaged{n}"));
        fs::write(aside(""), "another one").unwrap();
        let mut cache = Cache::new(indom(), &config).persistent();
        assert_eq!(cache.len(), size, "{text:?}");
        let again = cache.load().unwrap_err();
        assert!(matches!(again, CacheFileError::Damaged { line: found, .. } if found == line), "{again}, not {line}");
        // Without changes, the file is not written.
        cache.save().unwrap();
        assert_eq!(read(&file), text);
        cache.store("a", 1).unwrap();
        cache.save().unwrap();
        assert_eq!((read(&aside("")).as_str(), read(&aside(".2")).as_str()), ("another one", text));
        assert_eq!(Cache::<()>::new(indom(), &config).persistent().len(), size + 1);
        cache.write().unwrap();
        assert!(!aside(".3").exists());
    }
}

#[test]
fn damaged_files_that_are_kept_have_a_number() {
    let (dir, file, config) = home("");
    for n in 0..20 {
        fs::write(&file, format!("{n}\n")).unwrap();
        let mut cache = Cache::new(indom(), &config).persistent();
        cache.store("a", 1).unwrap();
        cache.save().unwrap();
    }
    let aside = |n: &str| read(&file.with_extension(format!("1.damaged{n}")));
    assert_eq!((aside(""), aside(".2"), aside(".8")), ("0\n".into(), "1\n".into(), "19\n".into()));
    assert_eq!(fs::read_dir(file.parent().unwrap()).unwrap().count(), 9);
    drop(dir);
}

#[test]
fn a_dump_has_a_line_for_each() {
    let mut cache = in_memory();
    cache.store_key("a b", &[1, 0xfe], ()).unwrap();
    cache.hide_all();
    let text = cache.dump().to_string();
    assert!(text.starts_with("instance domain 253.1: 1 instances, 0 active, lowest free number up to 2147483647\n"));
    assert!(text.ends_with(" hidden a b key 01fe\n"), "{text}");
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Store(u8),
    StoreKey(u8),
    Hide(u8),
    Cull(u8),
    CullAll,
    Reuse,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (0..200u8).prop_map(Step::Store),
        3 => (0..200u8).prop_map(Step::StoreKey),
        2 => (0..200u8).prop_map(Step::Hide),
        6 => (0..200u8).prop_map(Step::Cull),
        1 => Just(Step::CullAll),
        1 => Just(Step::Reuse),
    ];
    prop::collection::vec(step, 0..600)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(50))]

    /// After any operations in any order, instances are found by number, name and key, and iterate by number.
    #[test]
    fn any_order_of_operations(steps in steps()) {
        let mut cache = in_memory();
        let mut model: std::collections::BTreeMap<u32, (u8, bool)> = Default::default();
        let id = |model: &std::collections::BTreeMap<u32, (u8, bool)>, n: u8| {
            model.iter().find(|(_, (name, _))| *name == n).map(|(id, _)| Inst::new(*id))
        };
        for step in steps {
            match step {
                Step::Store(n) => {
                    let inst = cache.store(&format!("n{n} x"), n).unwrap();
                    prop_assert!(id(&model, n).is_none_or(|known| known == inst));
                    prop_assert!(model.insert(inst.word(), (n, true)).is_none_or(|(name, _)| name == n));
                }
                Step::StoreKey(n) => {
                    let Ok(inst) = cache.store_key(&format!("n{n} x"), &[n], n) else { continue };
                    prop_assert!(model.insert(inst.word(), (n, true)).is_none_or(|(name, _)| name == n));
                    prop_assert_eq!(cache.keyed(&[n]).map(|i| i.inst), Some(inst));
                }
                Step::Hide(n) => {
                    if let Some(inst) = id(&model, n) {
                        prop_assert_eq!(cache.hide(inst), model.insert(inst.word(), (n, false)) == Some((n, true)));
                    }
                }
                Step::Cull(n) => {
                    if let Some(inst) = id(&model, n) {
                        model.remove(&inst.word());
                        prop_assert_eq!(cache.cull(inst), Some(n));
                    }
                }
                Step::CullAll => {
                    model.clear();
                    cache.cull_all();
                }
                Step::Reuse => cache.reuse_numbers(),
            }
            prop_assert_eq!((cache.len(), cache.active_len()), (model.len(), model.values().filter(|v| v.1).count()));
            prop_assert!(cache.all().map(|i| i.inst.word()).eq(model.keys().copied()));
        }
        let all: Vec<(u32, u8, bool)> = cache.all().map(|i| (i.inst.word(), *i.value.unwrap(), i.is_active)).collect();
        prop_assert_eq!(all, model.iter().map(|(id, (n, active))| (*id, *n, *active)).collect::<Vec<_>>());
        for n in 0..200 {
            let found = cache.named(&format!("n{n}")).map(|i| i.inst);
            prop_assert_eq!(found, id(&model, n));
            prop_assert_eq!(found.and_then(|inst| cache.get(inst)).is_some(),
                found.is_some_and(|inst| model[&inst.word()].1));
        }
    }
}

#[test]
fn the_order_of_the_builder_does_not_matter() {
    let text = "2 0 9\n0 1 web server\n1 1 web client\n";
    let (_dir, _file, config) = home(text);
    let caches = [
        Cache::<()>::new(indom(), &config).whole_names().persistent(),
        Cache::<()>::new(indom(), &config).persistent().whole_names(),
    ];
    assert!(caches.iter().all(|cache| cache.len() == 2));
    assert_eq!(Cache::<()>::new(indom(), &config).persistent().len(), 1);
}
