//! Names in requests and responses: members of JSON objects and parameters of queries. Names of one common word, e.g.
//! `id` or `label`, are not listed.

/// Status that the host of an instance reported last: [`crate::Status`].
pub const ACTUAL_STATUS: &str = "actual_status";
/// Query: token of the page to read, from [`NEXT_TOKEN`].
pub const AFTER_TOKEN: &str = "after_token";
/// Search: size of the disk that prices include, GB.
pub const ALLOCATED_STORAGE: &str = "allocated_storage";
/// ID of an offer.
pub const ASK_CONTRACT_ID: &str = "ask_contract_id";
/// Type of a charge: bytes received.
pub const BWD: &str = "bwd";
/// Type of a charge: bytes sent.
pub const BWU: &str = "bwu";
/// Order: create nothing if the instance cannot start at once.
pub const CANCEL_UNAVAIL: &str = "cancel_unavail";
/// Compute capability times 100.
pub const COMPUTE_CAP: &str = "compute_cap";
/// Newest CUDA version that the driver supports.
pub const CUDA_MAX_GOOD: &str = "cuda_max_good";
/// State of the contract: [`crate::state`].
pub const CUR_STATE: &str = "cur_state";
/// Size of a disk, GB.
pub const DISK_SPACE: &str = "disk_space";
/// Result of the provider's benchmark, for all GPUs.
pub const DLPERF: &str = "dlperf";
/// Dollars per hour for all GPUs.
pub const DPH_BASE: &str = "dph_base";
/// Dollars per hour with the disk.
pub const DPH_TOTAL: &str = "dph_total";
/// Location of a host: region and country code.
pub const GEOLOCATION: &str = "geolocation";
/// IDs of the GPUs of an offer.
pub const GPU_IDS: &str = "gpu_ids";
/// Name of the kind of GPU.
pub const GPU_NAME: &str = "gpu_name";
/// List of all names of GPUs.
pub const GPU_NAMES: &str = "gpu_names";
/// Memory of a GPU, MB.
pub const GPU_RAM: &str = "gpu_ram";
/// 1 for a data center.
pub const HOSTING_TYPE: &str = "hosting_type";
/// Download rate, Mbit/s.
pub const INET_DOWN: &str = "inet_down";
/// Dollars per GB received.
pub const INET_DOWN_COST: &str = "inet_down_cost";
/// Number of instances that a list contains, on all of its pages.
pub const INSTANCES_FOUND: &str = "instances_found";
/// State that the account requested: [`crate::state`].
pub const INTENDED_STATUS: &str = "intended_status";
/// Query: order of charges.
pub const LATEST_FIRST: &str = "latest_first";
/// ID of a host.
pub const MACHINE_ID: &str = "machine_id";
/// Minimum bid, dollars per hour for all GPUs.
pub const MIN_BID: &str = "min_bid";
/// ID of the created instance.
pub const NEW_CONTRACT: &str = "new_contract";
/// Token of the next page.
pub const NEXT_TOKEN: &str = "next_token";
/// Search operator: none of these.
pub const NOTIN: &str = "notin";
/// Number of GPUs.
pub const NUM_GPUS: &str = "num_gpus";
/// Order: program to run in place of the entrypoint of the image.
pub const ONSTART: &str = "onstart";
/// Query: order of instances.
pub const ORDER_BY: &str = "order_by";
/// Reliability of a host, 0 to 1; an older name.
pub const RELIABILITY2: &str = "reliability2";
/// Whether an offer can be rented.
pub const RENTABLE: &str = "rentable";
/// Order: how the container starts.
pub const RUNTYPE: &str = "runtype";
/// Query: filters, JSON.
pub const SELECT_FILTERS: &str = "select_filters";
/// Message of the container runtime.
pub const STATUS_MSG: &str = "status_msg";
/// Dollars per GB and month.
pub const STORAGE_COST: &str = "storage_cost";
/// Order: state after the creation: [`crate::state`].
pub const TARGET_STATE: &str = "target_state";
/// Number of all instances of the account.
pub const TOTAL_INSTANCES: &str = "total_instances";
