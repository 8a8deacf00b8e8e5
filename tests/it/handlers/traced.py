"""A handler that returns its position in the trace of its job, and a file to upload."""

from stokehold import Reject, current_job, endpoint


@endpoint(name="traced")
def traced(text: str) -> dict:
    job = current_job()
    if not text:
        raise Reject("there is no text")
    written = job.scratch / "written.txt"
    written.write_text(text)
    return {"traceparent": job.traceparent, "file": written}
