//! An agent as a shared object that pmcd, dbpmda or a local context (`pminfo -L`) loads.
//!
//! This module has all unsafe code of the crate. The interface is C's, version 7: pmcd calls functions, and gets
//! structures that it frees. Each call becomes a PDU for the [`Engine`](crate::host::Engine), so an agent behaves in the same
//! way in every host.
//!
//! ```
//! # use pmda::prelude::*;
//! # #[derive(Debug)]
//! # struct Mine;
//! # impl Agent for Mine {
//! #     const NAME: &'static str = "mine";
//! #     const DOMAIN: u16 = 400;
//! #     fn new(_: &mut Setup) -> Result<Self, BoxError> { Ok(Mine) }
//! #     fn fetch(&mut self, _: Item, out: &mut Values<'_>) -> Result { out.put(42) }
//! # }
//! pmda::dso!(mine_init, Mine);
//! ```
#![allow(unsafe_code)]

// Crate `pcp-collector`, which loads shared objects, shares the hidden modules.
#[doc(hidden)]
pub mod abi;
pub(crate) mod block;
mod calls;
mod entry;
mod host;
#[doc(hidden)]
pub mod memory;
mod reply;
#[doc(hidden)]
pub mod values;

pub use abi::Interface;
pub use entry::init;

/// Exports the entry point of an agent's shared object. Its arguments are the name of the entry point in `pmcd.conf`,
/// by convention `NAME_init`, and the type of the agent.
///
/// The agent need not be `Send`, because it stays in the thread that calls the entry point. Calls of other threads get
/// `PM_ERR_THREAD`, which libpcp also gives to threads that use shared objects.
///
/// The library needs `crate-type = ["rlib", "cdylib"]`, and a profile without `panic = "abort"`, with which this macro
/// does not compile.
#[macro_export]
macro_rules! dso {
    ($init:ident, $agent:ty) => {
        const _: () = ::core::assert!(
            ::core::cfg!(panic = "unwind"),
            "panic = \"abort\" is not allowed: a panic of the agent would end pmcd, which loads it"
        );

        /// The entry point of the agent's shared object.
        ///
        /// # Safety
        /// `interface` must be the pointer that pmcd, dbpmda or a local context passes.
        #[allow(unsafe_code)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $init(interface: *mut $crate::dso::Interface) {
            // SAFETY: by the caller's promise.
            unsafe { $crate::dso::init::<$agent>(interface) }
        }
    };
}
