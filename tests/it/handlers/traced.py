"""A handler that says where it is in its job's trace, and gives a file, so that there is something to upload."""

from stokehold import Reject, current_job, endpoint


@endpoint(name="traced")
def traced(text: str) -> dict:
    job = current_job()
    if not text:
        raise Reject("there is no text")
    written = job.scratch / "written.txt"
    written.write_text(text)
    return {"traceparent": job.traceparent, "file": written}
