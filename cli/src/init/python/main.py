from stokehold import progress


class Greet:
    def setup(self) -> None:
        """Runs once per process: load the model here."""
        self.greeting = "Hello"

    def predict(self, name: str, times: int = 1) -> list[str]:
        """Runs for every job. The arguments are the input; the return value is the result."""
        progress(0.5, "halfway")
        return [f"{self.greeting}, {name}!"] * times
