from cog import BasePredictor, Input


class Predictor(BasePredictor):
    def setup(self) -> None:
        self.greeting = "Hello"

    def predict(self, name: str = Input(description="Name to greet")) -> str:
        return f"{self.greeting}, {name}!"
