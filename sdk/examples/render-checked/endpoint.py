"""`render` with a look at the prompt before it, at the picture after it, and a say in when it is tried again."""

from drawing import render

from stokehold import JobRetry, Step, endpoint

render_checked = endpoint(
    name="render-checked",
    before=[Step("prompt-check", thresholds={"violence": 0.5, "gore": 0.5, "weapons": 0.6, "self-harm": 0.3})],
    after=[Step("image-check", thresholds={"dark": 0.9, "red": 0.4}, timeout_s=60)],
    retry=JobRetry(backoff_s=1, backoff_max_s=60, jitter=0.5, on=["timeout", "handler_error"]),
)(render)
