//! Names of numbers: attributes of clients, ports of services.

use pcp_base::file;

/// Client attributes (`PCP_ATTR_*`): number, name, names accepted as input.
const ATTRIBUTES: &[(i32, &str, &[&str])] = &[
    (1, "protocol", &[]),
    (2, "secure", &["secure"]),
    (3, "compress", &["compress"]),
    (4, "userauth", &["userauth", "authorise", "authorize"]),
    (5, "username", &["username", "user"]),
    (6, "authname", &[]),
    (7, "password", &["password", "pass"]),
    (8, "method", &["method", "authmeth"]),
    (9, "realm", &["realm"]),
    (10, "unixsock", &["unixsock", "unix"]),
    (11, "userid", &["userid", "uid"]),
    (12, "groupid", &["groupid", "gid"]),
    (13, "local", &["local"]),
    (14, "processid", &["processid", "pid"]),
    (15, "container", &["container"]),
    (16, "exclusive", &["exclusive"]),
];

/// Returns the name of an attribute (`__pmAttrKeyStr_r`).
pub(crate) fn name(key: i32) -> Option<&'static str> {
    ATTRIBUTES.iter().find(|(number, ..)| *number == key).map(|(_, name, _)| *name)
}

/// Returns the attribute with a name (`__pmLookupAttrKey`). Some attributes have no name for input.
pub(crate) fn key(name: &[u8]) -> Option<i32> {
    let mut all = ATTRIBUTES.iter();
    all.find(|(.., names)| names.iter().any(|known| known.as_bytes() == name)).map(|(number, ..)| *number)
}

/// Returns the port of a service in `/etc/services` (getservbyname(3)).
pub(crate) fn service(name: &str) -> Option<i32> {
    port(&file::read_text("/etc/services").unwrap_or_default(), name)
}

/// Returns the port of a service in a text like `/etc/services`.
pub(crate) fn port(services: &str, name: &str) -> Option<i32> {
    services.lines().find_map(|line| {
        let mut words = line.split('#').next()?.split_whitespace();
        let (first, port) = (words.next()?, words.next()?);
        let port = port.split('/').next()?.parse::<u16>().ok()?;
        (first == name || words.any(|alias| alias == name)).then_some(port.into())
    })
}
