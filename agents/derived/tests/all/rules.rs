//! The agent breaks no rule of `dbpmda check`.

use crate::common;

#[test]
fn no_rule_is_broken() {
    let subject =
        common::Subject { binary: env!("CARGO_BIN_EXE_pmdaderived"), object: Some(("pmda_derived", "derived_init")) };
    subject.breaks_no_rule(|dir| {
        let user = String::from_utf8(std::process::Command::new("id").arg("-un").output().unwrap().stdout).unwrap();
        let command =
            [env!("CARGO_BIN_EXE_pmdaderived"), "-d", "405", "-c", "/dev/null", "-l", "operand.log", "--username"];
        let words = command.map(|word| format!("{word:?}")).join(", ");
        let agent = format!("agent = {{ domain = 405, command = [{words}, {:?}] }}", user.trim());
        let config = format!("[group.a]\n{agent}\nmetric.five = \"derived.control.reload + 5\"\n");
        std::fs::create_dir(dir.join("etc/pmdaderived")).unwrap();
        std::fs::write(dir.join("etc/pmdaderived/a.toml"), config).unwrap();
        ((), Vec::new())
    });
}
