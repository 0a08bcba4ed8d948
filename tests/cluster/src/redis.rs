//! A Redis on loopback, for tests of what lies in one: the program `redis-server` of Debian.

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::free_port;
use crate::process::Process;

/// How long it may take until it listens.
const READY_DEADLINE: Duration = Duration::from_secs(300);

/// The password of every such Redis.
pub const PASSWORD: &str = "not-a-secret";

/// A redis-server. It ends with this value, and keeps nothing.
pub struct Redis {
    _process: Process,
    port: u16,
}

impl Redis {
    /// Starts one that logs into `dir`.
    ///
    /// # Errors
    /// When the program is not there or does not come to listen.
    pub fn start(dir: &Path) -> Result<Self> {
        std::fs::create_dir_all(dir)?;
        let port = free_port()?;
        let dir = dir.display();
        let args = format!(
            "--bind 127.0.0.1 --port {port} --appendonly no --requirepass {PASSWORD} --dir {dir} --save"
        );
        let mut args: Vec<String> = args.split(' ').map(str::to_owned).collect();
        args.push(String::new());
        let log = PathBuf::from(format!("{dir}/redis.log"));
        let process = Process::spawn(Path::new("redis-server"), &args, log)?;
        let started = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if process.ended().is_some() || started.elapsed() > READY_DEADLINE {
                bail!("redis-server does not listen:\n{}", process.log_tail());
            }
            std::thread::sleep(Duration::from_millis(25));
        }
        Ok(Redis {
            _process: process,
            port,
        })
    }

    /// `127.0.0.1:PORT`
    #[must_use]
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Address and password as clients take them.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://:{PASSWORD}@127.0.0.1:{}", self.port)
    }
}
