//! Requests that a fetch group refuses.

#![allow(clippy::unwrap_used)]

use pcp_context::{Context, FetchGroup};
use pmapi::Type;
use proptest::prelude::*;
use testkit::Pcp;

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// A request with any text is refused with a message of one sentence.
    #[test]
    #[ignore = "needs PCP"]
    fn nonsense_is_refused(metric in any::<String>(), instance in any::<Option<String>>(), scale in any::<String>()) {
        let path = Pcp::required().testsuite().join("archives/kenj-pc-1");
        let mut group = FetchGroup::new(Context::open_archive(path).unwrap());
        let errors = [
            Some(group.item(&metric, instance.as_deref(), Some(&scale), Type::Double).unwrap_err()),
            Some(group.indom(&metric, Some(&scale), Type::U32).unwrap_err()),
            Some(group.event(&metric, None, &metric, Some(&scale), Type::String).unwrap_err()),
            // The start of an instance's name is enough, and some texts are units.
            group.item("kernel.all.load", instance.as_deref(), None, Type::Double).err(),
            group.indom("kernel.all.load", Some(&scale), Type::Double).err(),
        ];
        for error in errors.into_iter().flatten() {
            prop_assert!(!error.to_string().contains('\n'), "{error}");
        }
    }
}
