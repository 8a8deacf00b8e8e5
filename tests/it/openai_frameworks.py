"""LiteLLM and LangChain, unmodified, against `/openai/v1` with a real engine behind it.

They read OPENAI_BASE_URL and OPENAI_API_KEY by themselves.
"""

import litellm
from langchain_core.messages import HumanMessage, SystemMessage
from langchain_openai import ChatOpenAI, OpenAIEmbeddings

litellm.num_retries = 0
HI = [{"role": "user", "content": "hi"}]
# The model is random, so that its end of text is, too.
ENDLESS = {"ignore_eos": True}
VECTORS = [[1.0, 0.097], [2.0, 0.197]]


def rounded(vectors: list[list[float]]) -> list[list[float]]:
    return [[round(number, 3) for number in vector] for vector in vectors]


def litellm_chat() -> None:
    answer = litellm.completion(model="openai/chat", messages=HI, max_tokens=5, extra_body=ENDLESS)
    assert answer.choices[0].message.content and answer.usage.completion_tokens == 5, answer
    chunks = list(litellm.completion(model="openai/chat", messages=HI, max_tokens=20, stream=True, extra_body=ENDLESS))
    texts = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices[0].delta.content]
    assert len(texts) > 5 and chunks[-1].choices[0].finish_reason == "length", chunks


def litellm_embeddings() -> None:
    answer = litellm.embedding(model="openai/embed", input=["a", "bc"])
    assert rounded([item["embedding"] for item in answer.data]) == VECTORS, answer


def litellm_errors() -> None:
    try:
        litellm.completion(model="openai/nothing", messages=HI)
    except litellm.NotFoundError as error:
        assert "nothing" in str(error), error
    else:
        raise AssertionError("there is no such model")


def langchain_chat() -> None:
    chat = ChatOpenAI(model="chat", max_tokens=20, max_retries=0, extra_body=ENDLESS)
    messages = [SystemMessage("Answer in one word."), HumanMessage("hi")]
    answer = chat.invoke(messages)
    assert answer.content and answer.usage_metadata["output_tokens"] == 20, answer
    pieces = [piece.content for piece in chat.stream(messages) if piece.content]
    assert len(pieces) > 5, pieces
    answers = chat.batch([messages, messages])
    assert all(answer.content for answer in answers), answers


def langchain_embeddings() -> None:
    # Without this, LangChain sends tokens of OpenAI's own models instead of texts.
    embeddings = OpenAIEmbeddings(model="embed", check_embedding_ctx_length=False, max_retries=0)
    assert rounded(embeddings.embed_documents(["a", "bc"])) == VECTORS
    assert rounded([embeddings.embed_query("a")]) == VECTORS[:1]


for check in (litellm_chat, litellm_embeddings, litellm_errors, langchain_chat, langchain_embeddings):
    check()
    print(check.__name__, "ok", flush=True)
