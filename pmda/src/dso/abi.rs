//! The structures of `pmda.h` and `pmapi.h` that pmcd, dbpmda and local contexts share with an agent's shared object,
//! in C's layout for 64-bit machines.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::mem::{offset_of, size_of};

pub type Profile = unsafe extern "C" fn(*const CProfile, *mut Ext) -> c_int;
pub type Fetch = unsafe extern "C" fn(c_int, *mut u32, *mut *mut CResult, *mut Ext) -> c_int;
pub type Desc = unsafe extern "C" fn(u32, *mut CDesc, *mut Ext) -> c_int;
pub type Instance = unsafe extern "C" fn(u32, c_int, *mut c_char, *mut *mut CInstances, *mut Ext) -> c_int;
pub type Text = unsafe extern "C" fn(c_int, c_int, *mut *mut c_char, *mut Ext) -> c_int;
pub type Store = unsafe extern "C" fn(*mut CResult, *mut Ext) -> c_int;
pub type Id = unsafe extern "C" fn(*const c_char, *mut u32, *mut Ext) -> c_int;
pub type Name = unsafe extern "C" fn(u32, *mut *mut *mut c_char, *mut Ext) -> c_int;
pub type Children =
    unsafe extern "C" fn(*const c_char, c_int, *mut *mut *mut c_char, *mut *mut c_int, *mut Ext) -> c_int;
pub type Attribute = unsafe extern "C" fn(c_int, c_int, *const c_char, c_int, *mut Ext) -> c_int;
pub type Label = unsafe extern "C" fn(c_int, c_int, *mut *mut CLabelSet, *mut Ext) -> c_int;
pub type EndContext = unsafe extern "C" fn(c_int);

/// Interface version of this framework's shared objects (`PMDA_INTERFACE_7`).
pub const INTERFACE: u8 = 7;
/// `PMAPI_VERSION_2`, which every PCP accepts.
pub const PMAPI: u8 = 2;
/// Interface version that the host sets before it calls the entry point.
pub const CHALLENGE: u8 = 0xff;

/// `pmdaInterface`: the structure that the entry point of a shared object fills in.
#[derive(Debug)]
#[repr(C)]
pub struct Interface {
    pub domain: c_int,
    pub interface: u8,
    pub pmapi: u8,
    pub flags: u16,
    pub status: c_int,
    pub ext: *mut Ext,
    pub profile: Option<Profile>,
    pub fetch: Option<Fetch>,
    pub desc: Option<Desc>,
    pub instance: Option<Instance>,
    pub text: Option<Text>,
    pub store: Option<Store>,
    /// Names of metrics, from interface version 4 on.
    pub id: Option<Id>,
    pub name: Option<Name>,
    pub children: Option<Children>,
    /// Client attributes, from interface version 6 on.
    pub attribute: Option<Attribute>,
    /// Labels, from interface version 7 on.
    pub label: Option<Label>,
}

/// `pmdaExt`. pmcd writes the client's number into it, and reads the function for the end of a client. All other fields
/// belong to `libpcp_pmda`.
#[derive(Debug)]
#[repr(C)]
pub struct Ext {
    flags: c_uint,
    pub private: *mut Private,
    sockname: *mut c_char,
    name: *const c_char,
    logfile: *const c_char,
    helptext: *const c_char,
    status: c_int,
    infd: c_int,
    outfd: c_int,
    port: c_int,
    singular: c_int,
    ordinal: c_int,
    direct: c_int,
    domain: c_int,
    nmetrics: c_int,
    nindoms: c_int,
    help: c_int,
    profile: *mut c_void,
    iotype: c_int,
    indoms: *mut c_void,
    indom: *mut c_void,
    metrics: *mut c_void,
    result: *mut c_void,
    fetch: *mut c_void,
    check: *mut c_void,
    done: *mut c_void,
    pub context: c_int,
    pub end_context: Option<EndContext>,
    pub label: *mut c_void,
}

/// The structure that `pmdaInterfaceMoved` updates, with the current address of the interface.
#[derive(Debug)]
#[repr(C)]
pub struct Private {
    pub interface: *mut Interface,
    reserved: [usize; 15],
}

impl Interface {
    /// Creates the interface that the host passes to the entry point, which must replace both versions.
    pub fn challenge(domain: c_int) -> Interface {
        Interface {
            domain,
            interface: CHALLENGE,
            pmapi: !PMAPI,
            flags: 0,
            status: 0,
            ext: std::ptr::null_mut(),
            profile: None,
            fetch: None,
            desc: None,
            instance: None,
            text: None,
            store: None,
            id: None,
            name: None,
            children: None,
            attribute: None,
            label: None,
        }
    }
}

impl Ext {
    pub fn new(domain: c_int, private: *mut Private, end_context: EndContext) -> Ext {
        use std::ptr::{null, null_mut};
        Ext {
            flags: 0,
            private,
            sockname: null_mut(),
            name: null(),
            logfile: null(),
            helptext: null(),
            status: 0,
            infd: -1,
            outfd: -1,
            port: -1,
            singular: -1,
            ordinal: -1,
            direct: 0,
            domain,
            nmetrics: 0,
            nindoms: 0,
            help: -1,
            profile: null_mut(),
            iotype: 0,
            indoms: null_mut(),
            indom: null_mut(),
            metrics: null_mut(),
            result: null_mut(),
            fetch: null_mut(),
            check: null_mut(),
            done: null_mut(),
            context: -1,
            end_context: Some(end_context),
            label: null_mut(),
        }
    }
}

impl Private {
    pub fn new(interface: *mut Interface) -> Private {
        Private { interface, reserved: [0; 15] }
    }
}

/// `pmProfile`.
#[derive(Debug)]
#[repr(C)]
pub struct CProfile {
    pub state: c_int,
    pub count: c_int,
    pub indoms: *const CIndomProfile,
}

/// `pmInDomProfile`.
#[derive(Debug)]
#[repr(C)]
pub struct CIndomProfile {
    pub indom: u32,
    pub state: c_int,
    pub count: c_int,
    pub insts: *const c_int,
}

/// `pmDesc`: PMID, type, instance domain, semantics, units.
pub type CDesc = [u32; 5];

/// `pmInResult`.
#[derive(Debug)]
#[repr(C)]
pub struct CInstances {
    pub indom: u32,
    pub count: c_int,
    pub insts: *mut c_int,
    pub names: *mut *mut c_char,
}

/// The head of `pmResult`, whose array of value sets follows.
#[repr(C)]
pub struct CResult {
    pub seconds: i64,
    pub microseconds: i64,
    pub count: c_int,
    pub sets: [*mut CValueSet; 0],
}

/// The head of `pmValueSet`, whose array of values follows.
#[repr(C)]
pub struct CValueSet {
    pub pmid: u32,
    pub count: c_int,
    pub format: c_int,
    pub values: [CValue; 0],
}

/// `pmValue`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct CValue {
    pub inst: u32,
    pub value: CWord,
}

/// A value, or the address of its block.
#[derive(Clone, Copy)]
#[repr(C)]
pub union CWord {
    pub block: *mut u32,
    pub word: u32,
}

/// `pmLabelSet`.
#[derive(Debug)]
#[repr(C)]
pub struct CLabelSet {
    pub inst: u32,
    pub count: c_int,
    pub json: *mut c_char,
    pub json_len: u16,
    /// The highest bit is set when there are compound names.
    pub compound: u16,
    pub labels: *mut CLabel,
    pub hash: *mut c_void,
}

/// `pmLabel`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CLabel {
    pub name: u16,
    pub name_len: u8,
    pub flags: u8,
    pub value: u16,
    pub value_len: u16,
}

const _: () = {
    assert!(size_of::<Interface>() == 112 && offset_of!(Interface, ext) == 16 && offset_of!(Interface, label) == 104);
    assert!(size_of::<Ext>() == 192 && offset_of!(Ext, profile) == 96 && offset_of!(Ext, indoms) == 112);
    assert!(offset_of!(Ext, context) == 168 && offset_of!(Ext, end_context) == 176 && offset_of!(Ext, label) == 184);
    assert!(size_of::<CProfile>() == 16 && size_of::<CIndomProfile>() == 24 && offset_of!(CIndomProfile, insts) == 16);
    assert!(size_of::<CInstances>() == 24 && size_of::<CResult>() == 24 && offset_of!(CResult, count) == 16);
    assert!(offset_of!(CResult, sets) == 24 && size_of::<CValueSet>() == 16 && offset_of!(CValueSet, values) == 16);
    assert!(size_of::<CValue>() == 16 && offset_of!(CValue, value) == 8);
    assert!(size_of::<CLabelSet>() == 40 && offset_of!(CLabelSet, labels) == 24 && size_of::<CLabel>() == 8);
};
