"""Environment variables that no file of defaults lists: `{section: {name: (default, meaning)}}`."""

from __future__ import annotations

SECTIONS = {
    "Clients and command line": "The `stoke` command, the Python client and the JavaScript client. Options of the "
    "command line and arguments of a client override them.",
    "Store": "`stoke store`, the S3 server of `stoke dev` and `stoke server install`.",
    "Backups": "`stoke backup`, in addition to the settings of the API.",
    "Environment of a handler": "Variables that a worker sets for handlers, servers and commands. A handler also gets "
    "its secrets, and the variables in `env` of its endpoint.",
    "Machines of the worker": "Variables that describe the machine. A worker reads them, and passes the ones that "
    "concern Python and CUDA on to handlers.",
    "Packages of the worker": "Variables of uv, which builds environments. A worker passes these, `SSL_CERT_FILE`, "
    "`SSL_CERT_DIR` and the proxy variables on to uv.",
    "Installation scripts": "The script that `/v1/worker/install.sh` serves, and the script that starts a rented "
    "instance. Both also accept every setting of the worker.",
    "Docker Compose": "The file `.env` beside `deploy/compose.yaml`. `deploy/env.sh` writes it with new secrets.",
    "Development": "For tests and for work on Stokehold itself. Do not set them in production.",
}

OTHER: dict[str, dict[str, tuple[str, str]]] = {
    "Clients and command line": {
        "STOKE_URL": (
            "the address that `stoke dev` saved, else `http://127.0.0.1:7070`",
            "Address of the API.",
        ),
        "STOKE_TOKEN": (
            "the token that `stoke dev` saved for this address",
            "Token of the API.",
        ),
        "STOKE_PROFILE": ("`default`", "Profile of the saved address and token, as `stoke login --profile` names it."),
        "STOKE_CREDENTIALS": (
            "`~/.config/stokehold/credentials.json`",
            "File in which `stoke dev` and `stoke login` save addresses and tokens.",
        ),
        "STOKE_LOG": (
            "`info`, and `warn` for libraries",
            "Filter of log lines, e.g. `debug` or `stokehold_api=debug,warn`: the syntax of `RUST_LOG`.",
        ),
        "STOKE_LOG_FORMAT": ("text", "`json` logs one JSON object per line."),
        "STOKE_REDIS_SERVER": (
            "`valkey-server` or `redis-server` on PATH, else a pinned one",
            "Redis or Valkey program that `stoke dev` starts.",
        ),
        "HF_TOKEN": ("", "Token for private repositories of weights at Hugging Face. `stoke deploy` reads it."),
        "HF_ENDPOINT": ("`https://huggingface.co`", "Address of a mirror of Hugging Face. `stoke deploy` reads it."),
        "TRACEPARENT": ("", "Trace context of the caller, which `stoke submit` passes on to the job."),
        "COMPLETE": ("", "Shell that asks for completions: the script of `stoke completions` sets it on each Tab."),
        "TERM": ("", "`dumb` turns off progress bars."),
        "USER": ("", "Name that the audit log records for commands with direct access to Redis."),
    },
    "Store": {
        "STOKE_STORE_DATA": ("required", "Folder of the objects; only one process can use it at a time."),
        "STOKE_STORE_LISTEN": ("`127.0.0.1:7071`", "Address and port to listen on."),
    },
    "Backups": {
        "STOKE_BACKUP_URL": ("required", "Bucket for backups, as `s3://BUCKET/PREFIX`."),
        "STOKE_BACKUP_KEY": (
            "required",
            "Key that encrypts backups, 64 hex digits. Store a copy outside of the bucket.",
        ),
        "STOKE_BACKUP_S3_ENDPOINT_URL": ("the API's", "S3 server of the bucket."),
        "STOKE_BACKUP_S3_REGION": ("the API's", "Region of the bucket."),
        "STOKE_BACKUP_S3_ACCESS_KEY_ID": ("the API's", "Access key of the bucket."),
        "STOKE_BACKUP_S3_SECRET_ACCESS_KEY": ("the API's", "Secret key of the bucket."),
    },
    "Environment of a handler": {
        "STOKE_WEIGHTS": ("", "Folder with the weights of the endpoint; set if it declares weights."),
        "STOKE_VRAM_MIB": ("", "Memory that the model may use on each GPU, MiB."),
        "STOKE_VRAM_FRACTION": ("", "The same as a share of the GPU, e.g. `0.9`; set if the endpoint takes a share."),
        "STOKE_JOB_ID": ("", 'Id of the job. Only for `kind = "command"`.'),
        "STOKE_ATTEMPT": ("", 'Number of the attempt, from 1. Only for `kind = "command"`.'),
        "STOKE_OUTPUT_DIR": ("", 'Folder whose files become files of the result. Only for `kind = "command"`.'),
    },
    "Machines of the worker": {
        "CUDA_VISIBLE_DEVICES": ("", "GPUs of a handler; the worker sets it."),
        "CUDA_VERSION": ("", "CUDA version of a container image, for messages of `stoke worker check`."),
        "LD_LIBRARY_PATH": ("", "Folders in which the worker and handlers look for libraries of CUDA."),
        "PATH": ("", "Folders in which the worker looks for uv, bubblewrap and Python."),
        "HOME": ("", "Home directory; below it are the cache and the configuration of uv."),
        "XDG_CONFIG_HOME": ("`~/.config`", "Folder of the configuration of uv."),
    },
    "Packages of the worker": {
        "STOKE_UV_CACHE_DIR": ("a folder in `STOKE_CACHE_DIR`", "Folder of the cache of uv, shared by workers."),
        "UV_CONFIG_FILE": ("`uv.toml` in the folder of the user, else `/etc/uv/uv.toml`", "Configuration of uv."),
    },
    "Installation scripts": {
        "STOKE_START": (
            "`service` as root under systemd, else `foreground`",
            "`service` runs the worker under systemd, `foreground` becomes the worker, `no` only unpacks.",
        ),
        "STOKE_PREFIX": ("`/opt/stokehold` as root, else `~/.local/share/stokehold`", "Folder to unpack into."),
        "STOKE_FORCE": ("", "`1` continues if `stoke worker check` fails."),
        "STOKE_HOME": ("", "Root of all files of a rented instance."),
        "STOKE_WORKER_PROGRAM": ("", "An installed `stoke` on a rented instance, which skips the download."),
    },
    "Docker Compose": {
        "STOKE_DOMAIN": ("required", "Domain name of the machine."),
        "STOKE_TLS": (
            "Let's Encrypt",
            "A `tls` line of a Caddyfile; `tls internal` uses a private authority.",
        ),
        "STOKE_EMAIL": ("`admin@` the domain", "Address for Let's Encrypt."),
        "STOKE_VERSION": ("the version of the checkout", "Tag of the images."),
        "STOKE_SUBNET": ("`172.30.77.0/24`", "Subnet of the containers; it must not overlap with another network."),
    },
    "Development": {
        "BLESS": ("", "`1`: tests rewrite the files that they compare with, e.g. the reference of the command line."),
        "STOKE_FAILPOINTS": ("", "Faults to inject, in a build with failpoints."),
        "STOKE_MUTANT": ("", "A planted bug to switch on, in a build with mutants."),
    },
}

# Variables that one program of Stokehold sets for another one, with what they are for.
INTERNAL = {
    "STOKE_WIRE_FD": "the descriptor over which the worker talks to the runner",
}
