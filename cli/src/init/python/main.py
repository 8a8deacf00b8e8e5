from stokehold import progress


class Greet:
    def setup(self) -> None:
        """Runs once per process: load the model here."""
        self.greeting = "Hello"

    def predict(self, name: str, times: int = 1) -> list[str]:
        """Runs for every job. Its arguments are the input, what it returns is the result."""
        progress(0.5, "half way")
        return [f"{self.greeting}, {name}!"] * times
