import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            a, b = (pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name in ("A", "B"))
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("SUM", a + b)]))
        return answers
