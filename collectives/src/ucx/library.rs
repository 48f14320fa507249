//! UCX's library: finding, opening and binding it, since nothing is linked.

use gt_nvidia::{Missing, Opened, UCX};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

/// The version of the interface that these declarations follow, and the oldest library that is used. A library takes
/// every program of its own major version and the same or an older minor one.
const API_MAJOR: c_uint = 1;
const API_MINOR: c_uint = 13;

/// A result of UCX; errors are negative.
pub type Status = i8;
/// `UCS_OK`.
pub const OK: Status = 0;
/// `UCS_ERR_BUSY`: something is left to progress before the worker may sleep.
pub const BUSY: Status = -15;
/// `UCS_ERR_LAST`: a pointer from its value on is an error.
const LAST: Status = -100;

/// `UCP_PARAM_FIELD_FEATURES`.
const CONTEXT_HAS_FEATURES: u64 = 1;
/// `UCP_FEATURE_TAG` and `UCP_FEATURE_WAKEUP`.
const FEATURE_TAG: u64 = 1;
const FEATURE_WAKEUP: u64 = 16;
/// `UCP_WORKER_PARAM_FIELD_THREAD_MODE` and `UCS_THREAD_MODE_SERIALIZED`.
const WORKER_HAS_THREAD_MODE: u64 = 1;
const SERIALIZED: c_int = 1;
/// `UCP_EP_PARAM_FIELD_REMOTE_ADDRESS`, `UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE` and `UCP_EP_PARAM_FIELD_ERR_HANDLER`.
const ENDPOINT_HAS_ADDRESS: u64 = 1;
const ENDPOINT_HAS_ERROR_MODE: u64 = 2;
const ENDPOINT_HAS_ERROR_HANDLER: u64 = 4;
/// `UCP_ERR_HANDLING_MODE_PEER`: the failure of a peer ends its endpoint and all that is in flight there.
const ERRORS_OF_PEERS: c_int = 1;
/// `UCP_OP_ATTR_FIELD_CALLBACK`, `UCP_OP_ATTR_FIELD_USER_DATA` and `UCP_OP_ATTR_FIELD_FLAGS`.
const REQUEST_HAS_CALLBACK: c_uint = 2;
const REQUEST_HAS_DATA: c_uint = 4;
const REQUEST_HAS_FLAGS: c_uint = 16;
/// `UCP_EP_CLOSE_FLAG_FORCE`: what is in flight ends with an error.
const CLOSE_BY_FORCE: c_uint = 1;

/// `ucp_params_t`.
#[repr(C)]
pub struct ContextParams {
    field_mask: u64,
    features: u64,
    request_size: usize,
    request_init: *const c_void,
    request_cleanup: *const c_void,
    tag_sender_mask: u64,
    workers_shared: c_int,
    estimated_endpoints: usize,
    estimated_neighbours: usize,
    name: *const c_char,
    node_local_id: usize,
}

impl ContextParams {
    /// A context for tagged messages, whose workers can wake a thread that waits.
    pub fn tagged() -> ContextParams {
        ContextParams {
            field_mask: CONTEXT_HAS_FEATURES,
            features: FEATURE_TAG | FEATURE_WAKEUP,
            request_size: 0,
            request_init: std::ptr::null(),
            request_cleanup: std::ptr::null(),
            tag_sender_mask: 0,
            workers_shared: 0,
            estimated_endpoints: 0,
            estimated_neighbours: 0,
            name: std::ptr::null(),
            node_local_id: 0,
        }
    }
}

/// `ucp_worker_params_t`.
#[repr(C)]
pub struct WorkerParams {
    field_mask: u64,
    thread_mode: c_int,
    cpu_mask: [u64; 16],
    events: c_uint,
    user_data: *const c_void,
    event_fd: c_int,
    flags: u64,
    name: *const c_char,
    am_alignment: usize,
    client_id: u64,
}

impl WorkerParams {
    /// A worker that several threads use, one at a time.
    pub fn serialized() -> WorkerParams {
        WorkerParams {
            field_mask: WORKER_HAS_THREAD_MODE,
            thread_mode: SERIALIZED,
            cpu_mask: [0; 16],
            events: 0,
            user_data: std::ptr::null(),
            event_fd: 0,
            flags: 0,
            name: std::ptr::null(),
            am_alignment: 0,
            client_id: 0,
        }
    }
}

/// `ucp_ep_params_t`.
#[repr(C)]
pub struct EndpointParams {
    field_mask: u64,
    address: *const c_void,
    error_mode: c_int,
    /// `ucp_err_handler_t`: the function and its argument.
    error_handler: *const c_void,
    error_argument: *const c_void,
    user_data: *const c_void,
    flags: c_uint,
    sockaddr: [u64; 2],
    connection_request: *const c_void,
    name: *const c_char,
    local_sockaddr: [u64; 2],
}

/// `ucp_err_handler_cb_t`: called with its argument, the endpoint and the error.
pub type EndpointFailed = unsafe extern "C" fn(*mut c_void, *mut c_void, Status);

impl EndpointParams {
    /// The endpoint of the worker with this address. `failed` is called with `argument` when the peer fails.
    pub fn of(address: &[u8], failed: EndpointFailed, argument: *const c_void) -> EndpointParams {
        EndpointParams {
            field_mask: ENDPOINT_HAS_ADDRESS | ENDPOINT_HAS_ERROR_MODE | ENDPOINT_HAS_ERROR_HANDLER,
            address: address.as_ptr().cast(),
            error_mode: ERRORS_OF_PEERS,
            error_handler: failed as *const c_void,
            error_argument: argument,
            user_data: std::ptr::null(),
            flags: 0,
            sockaddr: [0; 2],
            connection_request: std::ptr::null(),
            name: std::ptr::null(),
            local_sockaddr: [0; 2],
        }
    }
}

/// `ucp_tag_recv_info_t`: a message that has come.
#[repr(C)]
#[derive(Debug, Default)]
pub struct MessageInfo {
    /// The message's tag.
    pub tag: u64,
    /// Its bytes.
    pub length: usize,
}

/// `ucp_request_param_t`.
#[repr(C)]
pub struct RequestParams {
    attributes: c_uint,
    flags: c_uint,
    request: *const c_void,
    callback: *const c_void,
    datatype: u64,
    user_data: *const c_void,
    reply_buffer: *const c_void,
    memory_type: c_int,
    received: *const c_void,
    memory: *const c_void,
    remote_datatype: u64,
    remote: *const c_void,
    remote_count: usize,
}

/// `ucp_send_nbx_callback_t`: called with the request, its result and its argument.
pub type Sent = unsafe extern "C" fn(*mut c_void, Status, *mut c_void);
/// `ucp_tag_recv_nbx_callback_t`: as [`Sent`], with the message before the argument.
pub type Received = unsafe extern "C" fn(*mut c_void, Status, *const MessageInfo, *mut c_void);

impl RequestParams {
    const NONE: RequestParams = RequestParams {
        attributes: 0,
        flags: 0,
        request: std::ptr::null(),
        callback: std::ptr::null(),
        datatype: 0,
        user_data: std::ptr::null(),
        reply_buffer: std::ptr::null(),
        memory_type: 0,
        received: std::ptr::null(),
        memory: std::ptr::null(),
        remote_datatype: 0,
        remote: std::ptr::null(),
        remote_count: 0,
    };

    /// A message to send; `sent` is called with `argument` unless it is sent at once.
    pub fn sending(sent: Sent, argument: *const c_void) -> RequestParams {
        let attributes = REQUEST_HAS_CALLBACK | REQUEST_HAS_DATA;
        RequestParams { attributes, callback: sent as *const c_void, user_data: argument, ..Self::NONE }
    }

    /// A message to receive; `received` is called with `argument` unless it is there at once.
    pub fn receiving(received: Received, argument: *const c_void) -> RequestParams {
        let attributes = REQUEST_HAS_CALLBACK | REQUEST_HAS_DATA;
        RequestParams { attributes, callback: received as *const c_void, user_data: argument, ..Self::NONE }
    }

    /// The end of an endpoint with all that is in flight there; `closed` is called with `argument` unless it has ended
    /// at once.
    pub fn closing(closed: Sent, argument: *const c_void) -> RequestParams {
        let attributes = REQUEST_HAS_CALLBACK | REQUEST_HAS_DATA | REQUEST_HAS_FLAGS;
        let callback = closed as *const c_void;
        RequestParams { attributes, flags: CLOSE_BY_FORCE, callback, user_data: argument, ..Self::NONE }
    }
}

/// UCX's types of handles, each under a name of its own, so that a test compares them with its header.
type RawContext = *mut c_void;
type RawConfig = *mut c_void;
type RawConstConfig = *const c_void;
type RawWorker = *mut c_void;
type RawAddress = *mut c_void;
type RawEndpoint = *mut c_void;
type RawMessage = *mut c_void;

gt_nvidia::functions! {
    /// The functions of UCX that are used.
    pub struct UcxLibrary {
        get_version: "ucp_get_version" (*mut c_uint, *mut c_uint, *mut c_uint) -> ();
        init: "ucp_init_version" (c_uint, c_uint, *const ContextParams, RawConstConfig, *mut RawContext) -> Status;
        cleanup: "ucp_cleanup" (RawContext) -> ();
        config_read: "ucp_config_read" (*const c_char, *const c_char, *mut RawConfig) -> Status;
        config_modify: "ucp_config_modify" (RawConfig, *const c_char, *const c_char) -> Status;
        config_release: "ucp_config_release" (RawConfig) -> ();
        worker_create: "ucp_worker_create" (RawContext, *const WorkerParams, *mut RawWorker) -> Status;
        worker_destroy: "ucp_worker_destroy" (RawWorker) -> ();
        worker_address: "ucp_worker_get_address" (RawWorker, *mut RawAddress, *mut usize) -> Status;
        release_address: "ucp_worker_release_address" (RawWorker, RawAddress) -> ();
        progress: "ucp_worker_progress" (RawWorker) -> c_uint;
        worker_efd: "ucp_worker_get_efd" (RawWorker, *mut c_int) -> Status;
        arm: "ucp_worker_arm" (RawWorker) -> Status;
        signal: "ucp_worker_signal" (RawWorker) -> Status;
        endpoint_create: "ucp_ep_create" (RawWorker, *const EndpointParams, *mut RawEndpoint) -> Status;
        endpoint_close: "ucp_ep_close_nbx" (RawEndpoint, *const RequestParams) -> *mut c_void;
        send: "ucp_tag_send_nbx" (RawEndpoint, *const c_void, usize, u64, *const RequestParams) -> *mut c_void;
        probe: "ucp_tag_probe_nb" (RawWorker, u64, u64, c_int, *mut MessageInfo) -> RawMessage;
        receive: "ucp_tag_msg_recv_nbx"
            (RawWorker, *mut c_void, usize, RawMessage, *const RequestParams) -> *mut c_void;
        request_free: "ucp_request_free" (*mut c_void) -> ();
        status_string: "ucs_status_string" (Status) -> *const c_char;
    }
}

/// The outcome of a call that may go on after it has returned.
pub enum Begun {
    /// It is done.
    Done,
    /// It goes on, and its callback will be called.
    Pending,
    /// It has failed, and its callback will not be called.
    Failed(Status),
}

impl Begun {
    /// The outcome that UCX returns as a pointer: null, a request, or an error from [`LAST`] on.
    pub fn of(pointer: *mut c_void) -> Begun {
        match pointer.addr() as isize {
            0 => Begun::Done,
            error if (isize::from(LAST)..0).contains(&error) => Begun::Failed(error as Status),
            _ => Begun::Pending,
        }
    }
}

impl UcxLibrary {
    /// UCX, opened at the first call.
    ///
    /// # Errors
    /// A sentence that says where UCX was looked for and how to install it.
    pub fn get() -> Result<&'static UcxLibrary, String> {
        static LIBRARY: OnceLock<Result<UcxLibrary, String>> = OnceLock::new();
        let open = || UCX.open(None, UcxLibrary::usable).map_err(|missing: Missing| missing.to_string());
        LIBRARY.get_or_init(open).as_ref().map_err(Clone::clone)
    }

    fn usable(opened: Opened) -> Result<UcxLibrary, String> {
        let library = UcxLibrary::bind(opened)?;
        check_version(library.version())?;
        Ok(library)
    }

    /// The library's version: major, minor, release.
    pub fn version(&self) -> (u32, u32, u32) {
        let (mut major, mut minor, mut release) = (0, 0, 0);
        // SAFETY: `ucp_get_version` writes three unsigned integers, which these are.
        unsafe { (self.get_version)(&raw mut major, &raw mut minor, &raw mut release) };
        (major, minor, release)
    }

    /// Makes a context, whose transports are `transports` if that says so, else those of the variable `UCX_TLS`.
    ///
    /// # Errors
    /// UCX's error.
    pub fn context(&self, transports: Option<&CStr>) -> Result<*mut c_void, String> {
        let mut config = std::ptr::null_mut();
        // SAFETY: null stands for no prefix and no file, and `config` is room for the pointer.
        let read = unsafe { (self.config_read)(std::ptr::null(), std::ptr::null(), &raw mut config) };
        self.check("read its configuration", read)?;
        let chosen = transports.map_or(OK, |transports| {
            // SAFETY: `config` was read just now, and both strings end with NUL.
            unsafe { (self.config_modify)(config, c"TLS".as_ptr(), transports.as_ptr()) }
        });
        let mut context = std::ptr::null_mut();
        let made = match chosen {
            // SAFETY: the parameters outlive the call, which copies them; `config` is released after it.
            OK => unsafe {
                let params = ContextParams::tagged();
                (self.init)(API_MAJOR, API_MINOR, &raw const params, config, &raw mut context)
            },
            status => status,
        };
        // SAFETY: nothing uses `config` from here on.
        unsafe { (self.config_release)(config) };
        self.check("make a context", made)?;
        Ok(context)
    }

    /// UCX's text for a result.
    pub fn explain(&self, status: Status) -> String {
        // SAFETY: `ucs_status_string` accepts any number.
        let text = unsafe { (self.status_string)(status) };
        if text.is_null() {
            return format!("UCX's error {status}");
        }
        // SAFETY: the strings of `ucs_status_string` end with NUL, and are static or live until this thread's next
        // call.
        format!("UCX says: {}", unsafe { CStr::from_ptr(text) }.to_string_lossy())
    }

    /// An error unless `status` says that UCX could do `what`.
    ///
    /// # Errors
    /// UCX's error.
    pub fn check(&self, what: &str, status: Status) -> Result<(), String> {
        if status == OK { Ok(()) } else { Err(format!("UCX cannot {what}: {}", self.explain(status))) }
    }
}

/// Refuses a library that does not take programs for the interface of these declarations.
fn check_version((major, minor, release): (u32, u32, u32)) -> Result<(), String> {
    match major {
        API_MAJOR if minor >= API_MINOR => Ok(()),
        _ => Err(format!("version {major}.{minor}.{release}, and {API_MAJOR}.{API_MINOR} or later is needed")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "Miri opens no libraries")]
    fn a_library_that_is_missing_or_another_one_is_one_sentence() {
        let paths = ["/nowhere/libucp.so.0".into(), "libc.so.6".into()];
        let error = UCX.open_first(&paths, UcxLibrary::usable).err().unwrap().to_string();
        for part in ["/nowhere/libucp.so.0: not there", "libc.so.6: it has no ucp_get_version", "apt install libucx0"] {
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn an_old_library_and_one_with_another_interface_are_refused() {
        assert_eq!(check_version((1, 22, 0)), Ok(()));
        assert_eq!(check_version((1, 12, 1)).unwrap_err(), "version 1.12.1, and 1.13 or later is needed");
        assert!(check_version((2, 0, 0)).is_err());
    }

    #[test]
    fn results_are_told_from_requests() {
        assert!(matches!(Begun::of(std::ptr::null_mut()), Begun::Done));
        assert!(matches!(Begun::of(std::ptr::without_provenance_mut(-6_isize as usize)), Begun::Failed(-6)));
        assert!(matches!(Begun::of(std::ptr::without_provenance_mut(4096)), Begun::Pending));
    }
}
