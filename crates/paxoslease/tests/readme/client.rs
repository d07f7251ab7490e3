use std::error::Error;
use std::time::Duration;

use paxoslease::Client;

/// `endpoints` such as "10.0.0.1:7400,10.0.0.2:7400,10.0.0.3:7400"
pub async fn nightly(endpoints: &str) -> Result<(), Box<dyn Error>> {
    let client = Client::new(endpoints)?;
    let lease = client.acquire("jobs/nightly", Duration::from_secs(15)).await?; // Waits in line.
    let job = async {
        // Work, and pass `lease.fence()` along with every write.
    };
    lease.run(job).await?; // Drops the job and fails if the lease is lost.
    lease.release().await?; // Other clients need not wait for the ttl.
    Ok(())
}
