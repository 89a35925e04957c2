//! Command `store`.

use crate::sessions::{Sessions, shows};

#[test]
#[ignore = "needs PCP"]
fn of_every_type() {
    let values = [
        "7",
        "-7",
        " 12",
        "+5",
        "12 ",
        "",
        "x",
        "1.5",
        "0x10",
        "1e3",
        "2147483647",
        "2147483648",
        "-2147483649",
        "4294967295",
        "4294967296",
        "9223372036854775807",
        "9223372036854775808",
        "-9223372036854775808",
        "-9223372036854775809",
        "18446744073709551615",
        "18446744073709551616",
        "-18446744073709551615",
        "1e38",
        "1e39",
        "-1e39",
        "1e-39",
        "1e-46",
        "1e308",
        "1e309",
        "1e-308",
        "1e-400",
        "inf",
        "-inf",
        "nan",
        "0x1.8p3",
        ".",
        ".5",
        "1e",
        "infinit",
        "some words",
        "it's",
        "1,5",
        "\t3",
    ];
    let metrics = [
        "sample.long.write_me",
        "sample.ulong.write_me",
        "sample.longlong.write_me",
        "sample.ulonglong.write_me",
        "sample.float.write_me",
        "sample.double.write_me",
        "sample.string.write_me",
        "sample.aggregate.write_me",
        "sample.event.records",
        "sample.event.highres_records",
        "sample.bad.nosupport",
        "sample.bad.unknown",
        "sample.bad.novalues",
        "sample.long.one",
        "1.2.3",
    ];
    let mut script = "getdesc on\n".to_owned();
    for metric in metrics {
        for value in values.iter().filter(|value| !value.is_empty()) {
            script += &format!("store {metric} \"{value}\"\n");
        }
        script += &format!("fetch {metric}\n");
    }
    let shown = Sessions::c_agent("sample").same(&script);
    shows(
        &shown,
        &[
            "Error: Value \"x\" is incompatible with metric type (PM_TYPE_U32)",
            "Error: Decoding value: Numerical result out of range",
            "Error: dbpmda does not support storing into AGGREGATE metrics",
            "Error: dbpmda does not support storing into HIGHRES_EVENT metrics",
            "Error PDU: No permission to perform requested operation",
            "-> \"it's\"",
        ],
    );
}

#[test]
#[ignore = "needs PCP"]
fn into_instances() {
    let shown = Sessions::c_agent("sample").same(
        "store sample.bin \"5\"\nprofile 29.2 none\nstore sample.bin \"6\"\nprofile 29.2 add 200\nprofile 29.2 add 400\n\
         store sample.bin \"7\"\nstore sample.double.bin \"1.25\"\nstore sample.string.bin \"x\"\n\
         profile 29.2 delete 200\nstore sample.longlong.bin \"8\"\nprofile 29.2 all\ngetiname on\nfetch sample.bin\n\
         fetch sample.double.bin\ndebug fetch\nstore sample.bin \"1\"\ndebug none\nstore sample.part_bin \"3\"\n\
         store sample.noinst \"1\"\nstore sample.darkness \"1\"",
    );
    shows(&shown, &["Sending Profile...\nGetting Result Structure...\n29.0.6 [0]: "]);
    shows(&shown, &[" not available!"]);
}
