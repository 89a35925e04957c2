//! Install or Remove.

/// What the program of an agent does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Task {
    Install,
    Remove,
}

impl Task {
    /// Returns the name of the script in the agent's directory.
    pub(crate) fn script(self) -> &'static str {
        match self {
            Task::Install => "Install",
            Task::Remove => "Remove",
        }
    }

    /// Returns the option of the agent's program.
    pub(crate) fn option(self) -> &'static str {
        match self {
            Task::Install => "--install",
            Task::Remove => "--remove",
        }
    }

    /// Returns the options, as `Install -?` prints them.
    pub(crate) fn usage(self) -> &'static str {
        match self {
            Task::Install => include_str!("install.txt"),
            Task::Remove => include_str!("remove.txt"),
        }
    }
}
