import runpod


def handler(job):
    return f"Hello, {job['input']['name']}!"


runpod.serverless.start({"handler": handler})
