//! Derived metrics, which have names and PMIDs but no agent.

use crate::sessions::{Sessions, shows};

#[test]
#[ignore = "needs PCP"]
fn derived() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("one");
    std::fs::write(
        &file,
        "# comment\nmy.derived = simple.color\nmy.derived(oneline) = \"text\"\n\nmy.sum = my.derived + 1\n",
    )
    .unwrap();
    let other = dir.path().join("dir/two");
    std::fs::create_dir(other.parent().unwrap()).unwrap();
    std::fs::write(&other, "my.other = simple.numfetch * 2\nsimple.color = simple.numfetch\n").unwrap();
    let paths = format!("{}:{}:/no/such", file.display(), other.parent().unwrap().display());
    let sessions = Sessions::c_agent("simple").env("PCP_DERIVED_CONFIG", paths);
    let shown = sessions.same(
        "debug pmns\nfetch my.derived my.sum, my.other simple.color\ndesc my.derived\ndebug none\ngetdesc on\n\
         fetch my.other\nfetch event.flags\ndesc event.missed\nfetch 511.0.1 511.0.4 511.0.6\nfetch my.nosuch\n\
         store my.sum \"1\"\nname 511.0.3\ntext my.sum",
    );
    shows(&shown, &["511.0.4 (my.sum): "]);
}

#[test]
#[ignore = "needs PCP"]
fn invalid_definitions() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("derived");
    std::fs::write(&file, "my.good = simple.color\nmy.bad = (\n1x = simple.color\n").unwrap();
    let sessions = Sessions::c_agent("simple").env("PCP_DERIVED_CONFIG", file.display().to_string());
    let shown = sessions.same("desc my.good\ndesc my.bad\ndesc 511.0.3");
    shows(&shown, &["illegal derived metric name (1x)", "Error: Unknown metric name\n"]);
}
