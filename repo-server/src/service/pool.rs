//! Threads that may be kept busy by reading files and objects, which those of the connections must not be.

/// The threads.
pub(super) struct Pool(Option<tokio::runtime::Runtime>);

impl Pool {
    pub(super) fn new() -> std::io::Result<Pool> {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(4 * cores)
            .thread_name("render")
            .thread_stack_size(8 << 20)
            .enable_all()
            .build()?;
        Ok(Pool(Some(runtime)))
    }

    pub(super) fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> tokio::task::JoinHandle<T> {
        let runtime = self.0.as_ref().expect("invariant: it is taken by drop alone");
        runtime.spawn(work)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // A runtime may not wait for its threads inside of another.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}
