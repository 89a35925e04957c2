//! Version of a program, for its option `--version`.

/// Returns the version of a program of this project: that of its package, `env!("CARGO_PKG_VERSION")`, and the commit.
///
/// The commit is that of the environment variable `PCP_RS_COMMIT` during the compilation of this crate, which
/// `packaging/build` sets. Without the variable the text has the version alone.
///
/// ```
/// assert!(pcp_base::build::version("0.1.0").starts_with("0.1.0"));
/// ```
pub fn version(package: &str) -> String {
    with_commit(package, option_env!("PCP_RS_COMMIT"))
}

fn with_commit(package: &str, commit: Option<&str>) -> String {
    match commit {
        Some(commit) if !commit.is_empty() => format!("{package} (commit {commit})"),
        _ => package.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commit_follows_the_version() {
        assert_eq!(with_commit("0.1.0", Some("1a2b3c")), "0.1.0 (commit 1a2b3c)");
        assert_eq!(with_commit("0.1.0", Some("")), "0.1.0");
        assert_eq!(with_commit("0.1.0", None), "0.1.0");
    }
}
