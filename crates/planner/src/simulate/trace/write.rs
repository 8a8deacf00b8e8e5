//! Writing a trace.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use flate2::{Compression, GzBuilder};

use super::{Error, HEADER, Job};

/// Writes a trace as gzipped CSV. The same jobs give the same bytes: the file contains no time and no name, and a
/// number has as many digits as are needed to read it back.
///
/// # Errors
/// [`Error::Write`]: a partial file may be left, which the caller has to remove.
pub fn write(path: &Path, jobs: &[Job]) -> Result<(), Error> {
    let written =
        File::create(path).and_then(|file| encode(BufWriter::new(file), jobs)).and_then(|mut file| file.flush());
    written.map_err(|source| Error::Write { path: path.to_owned(), source })
}

fn encode<W: Write>(target: W, jobs: &[Job]) -> io::Result<W> {
    let gzip = GzBuilder::new().write(target, Compression::best());
    let mut csv = csv::Writer::from_writer(gzip);
    csv.write_record(HEADER)?;
    for job in jobs {
        let numbers = [job.arrival_s, job.service_s, job.vram_gb].map(|number| number.to_string());
        let [arrival_s, service_s, vram_gb] = &numbers;
        csv.write_record([arrival_s, &*job.endpoint, service_s, vram_gb, job.priority.as_str()])?;
    }
    csv.into_inner().map_err(|error| error.into_error())?.finish()
}

#[cfg(test)]
mod tests {
    use super::super::{Priority, read};
    use super::*;

    fn jobs() -> Vec<Job> {
        let job = |arrival_s, endpoint: &str, priority| Job {
            arrival_s,
            endpoint: endpoint.into(),
            service_s: 0.1 + 0.2,
            vram_gb: 13.5,
            priority,
        };
        vec![
            job(0.0, "a", Priority::Batch),
            job(1e-7, "b, \"c\"", Priority::Interactive),
            job(3e7, "a", Priority::Batch),
        ]
    }

    #[test]
    fn what_is_written_reads_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace.csv.gz");
        write(&path, &jobs()).unwrap();
        assert_eq!(read(&path).unwrap(), jobs());
    }

    #[test]
    fn the_same_jobs_give_the_same_bytes() {
        let bytes = encode(Vec::new(), &jobs()).unwrap();
        assert_eq!(bytes, encode(Vec::new(), &jobs()).unwrap());
        assert_eq!(bytes[4..8], [0; 4], "a time is in its header");
    }

    #[test]
    fn a_folder_that_is_not_there_is_told() {
        let told = write(Path::new("/nowhere/trace.csv.gz"), &jobs()).unwrap_err();
        assert_eq!(told.to_string(), "failed to write trace /nowhere/trace.csv.gz");
    }
}
