from stokehold import endpoint


@endpoint(timeout_s=10, max_batch_size=1)
class Greet:
    def predict(self, name: str, times: int = 1) -> list[str]:
        return [f"Hello, {name}!"] * times
