#include "engine/engine.h"

#include <gtest/gtest.h>
#include <tiny_model.h>

#include <limits>
#include <random>
#include <thread>

#include "gguf/temp_folder.h"

namespace lockstep::test {
namespace {

// What a request gave, all of it.
struct Answer {
  std::vector<int32_t> tokens;
  std::vector<std::string> pieces;
  std::string text;  // of all events, and the tail
  Summary summary;
};

Answer Collect(Request& request) {
  Answer answer;
  Event event;
  while (request.Next(&event) == Request::State::kEvent) {
    answer.tokens.push_back(event.token);
    if (!event.text.empty()) answer.pieces.push_back(event.text);
    answer.text += event.text;
  }
  answer.summary = request.summary();
  answer.text += answer.summary.tail;
  return answer;
}

Answer Ask(Engine& engine, const RequestOptions& options) {
  return Collect(*engine.Submit(options).value());
}

std::string RefusalOf(Engine& engine, const RequestOptions& options) {
  auto request = engine.Submit(options);
  return request.ok() ? "" : request.error().what();
}

// All at once; answers in the same order.
std::vector<Answer> AskTogether(Engine& engine, const std::vector<RequestOptions>& requests) {
  std::vector<std::shared_ptr<Request>> handles;
  for (const RequestOptions& options : requests) handles.push_back(engine.Submit(options).value());
  std::vector<Answer> answers;
  for (const auto& handle : handles) answers.push_back(Collect(*handle));
  return answers;
}

std::vector<int32_t> RandomPrompt(uint32_t seed, size_t length) {
  std::mt19937 random(seed);
  std::vector<int32_t> prompt;
  for (size_t i = 0; i < length; ++i) prompt.push_back(static_cast<int32_t>(3 + random() % 297));
  return prompt;
}

RequestOptions Greedy(std::vector<int32_t> prompt, int64_t max_tokens) {
  RequestOptions options;
  options.prompt = std::move(prompt);
  options.max_tokens = max_tokens;
  options.sampling.temp = 0;
  options.ignore_eos = true;
  return options;
}

RequestOptions Sampled(std::vector<int32_t> prompt, int64_t max_tokens, int64_t seed) {
  RequestOptions options = Greedy(std::move(prompt), max_tokens);
  options.sampling.temp = 0.8f;
  options.sampling.seed = seed;
  return options;
}

// Requests of many lengths, greedy and sampled; some share their first 100 tokens, two differ in the seed alone.
std::vector<RequestOptions> Mixture() {
  std::vector<RequestOptions> requests;
  uint32_t seed = 100;
  for (size_t length : {1, 63, 64, 65, 130})
    requests.push_back(Greedy(RandomPrompt(seed++, length), 12));
  const std::vector<int32_t> common = RandomPrompt(7, 100);
  for (size_t more : {1, 30}) {
    std::vector<int32_t> prompt = common, end = RandomPrompt(seed++, more);
    prompt.insert(prompt.end(), end.begin(), end.end());
    requests.push_back(Sampled(prompt, 40, 7));
  }
  requests.push_back(Sampled(common, 20, 8));
  return requests;
}

void ExpectSame(const Answer& found, const Answer& expected) {
  EXPECT_EQ(found.tokens, expected.tokens);
  EXPECT_EQ(found.text, expected.text);
  EXPECT_EQ(found.summary.logits_hash, expected.summary.logits_hash);
  EXPECT_EQ(found.summary.reason, expected.summary.reason);
  EXPECT_EQ(found.summary.error, expected.summary.error);
  EXPECT_EQ(found.summary.generated_tokens, expected.summary.generated_tokens);
}

LoadOptions Load(const std::string& path, int64_t context = 256, int64_t sequences = 1,
                 int threads = 1, int64_t micro_batch = 512) {
  LoadOptions options;
  options.path = path;
  options.context = context;
  options.sequences = sequences;
  options.threads = threads;
  options.micro_batch = micro_batch;
  return options;
}

// Model files, written once.
const std::string& Dense() {
  static const TempFolder folder;
  static const std::string path = [] {
    TinyModel(TinyOptions{}).Write(folder / "f32.gguf");
    WriteInFormat(GgufFile::Open(folder / "f32.gguf"), *FindFormat("Q8_0"), folder / "dense.gguf");
    return folder / "dense.gguf";
  }();
  return path;
}

const std::string& Windowed() {
  static const TempFolder folder;
  static const std::string path = [] {
    TinyModel(WindowedOptions()).Write(folder / "windowed.gguf");
    return folder / "windowed.gguf";
  }();
  return path;
}

const std::string& Hybrid() {
  static const TempFolder folder;
  static const std::string path = [] {
    TinyModel(HybridOptions()).Write(folder / "hybrid.gguf");
    return folder / "hybrid.gguf";
  }();
  return path;
}

class EngineBits : public testing::TestWithParam<const std::string& (*)()> {
 protected:
  // Each alone in an engine of one thread, nothing cached.
  std::vector<Answer> Alone(std::vector<RequestOptions> requests) {
    Engine engine(Load(GetParam()()));
    std::vector<Answer> answers;
    for (RequestOptions& options : requests) {
      options.cache_prompt = false;
      answers.push_back(Ask(engine, options));
      EXPECT_EQ(answers.back().summary.error, "");
      EXPECT_EQ(answers.back().summary.cached_tokens, 0);
      EXPECT_EQ(answers.back().summary.logits_hash.size(), 64u);
    }
    return answers;
  }
};

TEST_P(EngineBits, DoNotDependOnBatchMatesMicroBatchThreadsOrCachedPrefixes) {
  const std::vector<RequestOptions> requests = Mixture();
  const std::vector<Answer> alone = Alone(requests);
  struct Shape {
    int64_t sequences, micro_batch;
    int threads;
  };
  for (const Shape& shape : {Shape{1, 1, 1},
                             {1, 7, 2},
                             {2, 33, 4},
                             {4, 512, 1},
                             {8, 512, 2},
                             {8, 33, 1},
                             {8, 7, 4},
                             {3, 1, 1}}) {
    SCOPED_TRACE(fmt::format("{} sequences, micro-batch {}, {} threads", shape.sequences,
                             shape.micro_batch, shape.threads));
    Engine engine(Load(GetParam()(), 256, shape.sequences, shape.threads, shape.micro_batch));
    // The second time prefixes are cached, as far as other requests have left room.
    int64_t cached = 0;
    for (int time = 0; time < 2; ++time) {
      const std::vector<Answer> answers = AskTogether(engine, requests);
      for (size_t i = 0; i < requests.size(); ++i) {
        SCOPED_TRACE(fmt::format("request {}, time {}", i, time));
        ExpectSame(answers[i], alone[i]);
        if (time == 1) cached += answers[i].summary.cached_tokens;
      }
    }
    EXPECT_GT(cached, 0);
  }
}

TEST_P(EngineBits, DoNotDependOnTheNumberOfMates) {
  std::vector<RequestOptions> requests = Mixture();
  const std::vector<Answer> alone = Alone(requests);
  Engine engine(Load(GetParam()(), 256, 8));
  for (size_t count = 1; count <= requests.size(); ++count) {
    std::vector<RequestOptions> some(requests.begin(),
                                     requests.begin() + static_cast<int64_t>(count));
    for (RequestOptions& options : some) options.cache_prompt = count % 2 == 0;
    const std::vector<Answer> answers = AskTogether(engine, some);
    for (size_t i = 0; i < count; ++i) ExpectSame(answers[i], alone[i]);
  }
}

TEST_P(EngineBits, AreThoseOfAColdRunAfterACachedPrefix) {
  // B091: the second run reuses the prompt, windowed layers included.
  std::vector<RequestOptions> request = {Greedy(RandomPrompt(5, 129), 10)};
  const Answer cold = Alone(request)[0];
  Engine engine(Load(GetParam()(), 256, 1, 1, 4));
  ExpectSame(Ask(engine, request[0]), cold);
  const Answer warm = Ask(engine, request[0]);
  EXPECT_EQ(warm.summary.cached_tokens, 128);
  EXPECT_EQ(warm.summary.prompt_tokens, 129);
  ExpectSame(warm, cold);
}

TEST_P(EngineBits, HoldUnderRequestsFromManyClients) {
  const std::vector<RequestOptions> requests = Mixture();
  const std::vector<Answer> alone = Alone(requests);
  Engine engine(Load(GetParam()(), 256, 4, 2, 48));
  constexpr int kClients = 8, kRequests = 25;
  std::atomic<int> cancelled{0}, wrong{0};
  std::vector<std::thread> clients;
  for (int client = 0; client < kClients; ++client) {
    clients.emplace_back([&, client] {
      std::mt19937 random(static_cast<uint32_t>(client));
      for (int i = 0; i < kRequests; ++i) {
        const size_t which = random() % requests.size();
        auto request = engine.Submit(requests[which]).value();
        Event event;
        if (random() % 4 == 0) {
          for (uint32_t read = random() % 4; read > 0; --read) request->Next(&event);
          request->Cancel();
          while (request->Next(&event) == Request::State::kEvent) continue;
          cancelled += request->summary().reason == FinishReason::kCancelled;
        } else {
          const Answer answer = Collect(*request);
          wrong += answer.tokens != alone[which].tokens ||
                   answer.summary.logits_hash != alone[which].summary.logits_hash;
        }
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(cancelled, 0);
}

std::string NameOfModel(const testing::TestParamInfo<const std::string& (*)()>& info) {
  constexpr const char* kNames[] = {"Dense", "Windowed", "Hybrid"};
  return kNames[info.index];
}
INSTANTIATE_TEST_SUITE_P(Models, EngineBits, testing::Values(&Dense, &Windowed, &Hybrid),
                         NameOfModel);

std::vector<int32_t> Joined(std::vector<int32_t> a, const std::vector<int32_t>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Recurrent states are at hand at the end of a prompt, where a prompt left another's pages, and at the end of an answer.
TEST(RecurrentPrefixes, GoOnFromTheSnapshotsThatAreLikelyToBeOfUse) {
  Engine engine(Load(Hybrid(), 512, 2)), cold(Load(Hybrid(), 512, 1));
  auto cached = [&](const std::vector<int32_t>& prompt, int64_t tokens = 4) {
    RequestOptions options = Greedy(prompt, tokens);
    const Answer answer = Ask(engine, options);
    options.cache_prompt = false;
    ExpectSame(answer, Ask(cold, options));
    return answer.summary.cached_tokens;
  };
  const std::vector<int32_t> common = RandomPrompt(1, 130);
  const std::vector<int32_t> first = Joined(common, RandomPrompt(2, 70));
  EXPECT_EQ(cached(first), 0);
  EXPECT_EQ(cached(first), 192);
  // Another that shares 128 tokens finds their pages but no state; the third does.
  EXPECT_EQ(cached(Joined(common, RandomPrompt(3, 70))), 0);
  EXPECT_EQ(cached(Joined(common, RandomPrompt(4, 70))), 128);
  // A conversation goes on from its last answer.
  const std::vector<int32_t> prompt = RandomPrompt(9, 40);
  const Answer answer = Ask(engine, Greedy(prompt, 100));
  const std::vector<int32_t> turn = Joined(Joined(prompt, answer.tokens), RandomPrompt(10, 20));
  EXPECT_EQ(cached(turn), 128);
}

TEST(RecurrentPrefixes, AreProcessedAgainWithoutSnapshots) {
  LoadOptions load = Load(Hybrid());
  load.snapshots = 0;
  Engine engine(load);
  const RequestOptions request = Greedy(RandomPrompt(5, 129), 10);
  const Answer first = Ask(engine, request), second = Ask(engine, request);
  EXPECT_EQ(second.summary.cached_tokens, 0);
  ExpectSame(second, first);
}

TEST(RecurrentPrefixes, CountWithTheMemoryOfTheModel) {
  LoadOptions load = Load(Hybrid());
  load.snapshots = int64_t{1} << 20;
  load.memory_limit = int64_t{1} << 30;
  EXPECT_THROW(Engine{load}, Error);
}

// B103
TEST(Engine, GivesOneSeedOneAnswer) {
  Engine engine(Load(Dense()));
  const RequestOptions request = Sampled(RandomPrompt(1, 20), 30, 7);
  const Answer first = Ask(engine, request);
  for (int i = 0; i < 2; ++i) ExpectSame(Ask(engine, request), first);
  EXPECT_NE(Ask(engine, Sampled(RandomPrompt(1, 20), 30, 8)).tokens, first.tokens);
}

// B094: every answer comes from the request's own prompt, whatever the pages of others hold.
TEST(Engine, ReadsNoPageOfAnotherConversation) {
  std::vector<RequestOptions> requests;
  for (uint32_t i = 0; i < 20; ++i) {
    std::vector<int32_t> prompt = RandomPrompt(3, 64), own = RandomPrompt(1000 + i, 70);
    prompt.insert(prompt.end(), own.begin(), own.end());
    requests.push_back(Greedy(prompt, 4));
  }
  Engine cold(Load(Dense()));
  std::vector<Answer> alone;
  for (RequestOptions request : requests) {
    request.cache_prompt = false;
    alone.push_back(Ask(cold, request));
  }
  Engine engine(Load(Dense(), 256, 2));
  for (int time = 0; time < 2; ++time) {
    const std::vector<Answer> answers = AskTogether(engine, requests);
    for (size_t i = 0; i < requests.size(); ++i) ExpectSame(answers[i], alone[i]);
  }
}

// Of two conversations with one beginning that run at once, both are found again.
TEST(Engine, CachesConversationsThatBeganTogether) {
  std::vector<RequestOptions> requests;
  for (uint32_t i = 0; i < 2; ++i) {
    std::vector<int32_t> prompt = RandomPrompt(3, 64), own = RandomPrompt(50 + i, 66);
    prompt.insert(prompt.end(), own.begin(), own.end());
    requests.push_back(Greedy(prompt, 3));
  }
  Engine engine(Load(Dense(), 512, 2));
  AskTogether(engine, requests);
  for (const RequestOptions& request : requests)
    EXPECT_EQ(Ask(engine, request).summary.cached_tokens, 128);
}

// Pages are taken from the end of what lies idle, so that a beginning many share stays longest.
TEST(Engine, KeepsTheBeginningOfAPromptLongest) {
  const RequestOptions request = Greedy(RandomPrompt(3, 193), 1);
  Engine engine(Load(Dense(), 256));
  Ask(engine, request);
  // Of four pages three are idle, this takes two.
  Ask(engine, Greedy(RandomPrompt(4, 65), 1));
  EXPECT_EQ(Ask(engine, request).summary.cached_tokens, 128);
}

TEST(Engine, AsksForAcceptanceBeforeWeightsAreRead) {
  LoadOptions options = Load(Dense(), 128);
  int64_t progress = 0;
  options.progress = [&](int64_t, int64_t) { ++progress; };
  options.accept = [&](const Model& model) {
    EXPECT_EQ(model.context(), 128);
    EXPECT_EQ(model.tokenizer().size(), 300);
    EXPECT_EQ(progress, 0);
    if (const auto refusal = PromptRefusal(model, {})) throw *refusal;
  };
  EXPECT_THROW(Engine{options}, Error);
  EXPECT_EQ(progress, 0);
  options.accept = nullptr;
  Engine engine(options);
  EXPECT_GT(progress, 0);
}

TEST(Engine, RefusesWhatIsNoPrompt) {
  Engine engine(Load(Dense(), 128));
  struct Case {
    std::vector<int32_t> prompt;
    const char* message;
  };
  for (const Case& c :
       {Case{{}, "prompt: expected at least one token, found none"},
        {RandomPrompt(1, 128), "prompt: expected fewer than 128 tokens, the context, found 128"},
        {RandomPrompt(1, 1000), "prompt: expected fewer than 128 tokens, the context, found 1000"},
        {{5, -1}, "prompt: expected tokens below 300, found -1"},
        {{300, 5}, "prompt: expected tokens below 300, found 300"},
        {{std::numeric_limits<int32_t>::min()},
         "prompt: expected tokens below 300, found -2147483648"},
        {{std::numeric_limits<int32_t>::max()},
         "prompt: expected tokens below 300, found 2147483647"}}) {
    EXPECT_EQ(RefusalOf(engine, Greedy(c.prompt, 1)), c.message);
  }
  RequestOptions bad = Greedy({5}, 1);
  bad.sampling.logit_bias = {{300, 1.0f}};
  EXPECT_NE(RefusalOf(engine, bad), "");
  EXPECT_EQ(Ask(engine, Greedy({5}, 1)).summary.generated_tokens, 1);
}

// B022: the reason is the length where a limit ends the answer.
TEST(Engine, EndsAtTheLimitOfTokens) {
  Engine engine(Load(Dense(), 128));
  for (int64_t limit : {0, 1, 5}) {
    const Answer answer = Ask(engine, Greedy(RandomPrompt(1, 10), limit));
    EXPECT_EQ(answer.summary.reason, FinishReason::kLength);
    EXPECT_EQ(answer.summary.generated_tokens, limit);
    EXPECT_EQ(std::ssize(answer.tokens), limit);
    EXPECT_EQ(answer.summary.logits_hash.size(), 64u);
    EXPECT_EQ(answer.summary.prompt_tokens, 10);
    EXPECT_EQ(answer.text.empty(), limit == 0);
  }
}

TEST(Engine, EndsWhereTheContextIsFull) {
  for (int64_t context : {1 + 64, 128, 130}) {
    Engine engine(Load(Dense(), context));
    for (int64_t length : {int64_t{1}, int64_t{63}, int64_t{64}, context - 1}) {
      const Answer answer = Ask(engine, Greedy(RandomPrompt(1, static_cast<size_t>(length)), -1));
      EXPECT_EQ(answer.summary.reason, FinishReason::kLength);
      EXPECT_EQ(answer.summary.generated_tokens, context - length);
    }
  }
}

TEST(Engine, EndsWhatIsCancelledWhileItWaitsForASeat) {
  Engine engine(Load(Dense(), 4096, 1));
  auto running = engine.Submit(Greedy({5}, -1)).value();
  Event event;
  ASSERT_EQ(running->Next(&event), Request::State::kEvent);
  auto waiting = engine.Submit(Greedy({6}, -1)).value();
  waiting->Cancel();
  // Without waiting for the other one, which has thousands of tokens to go.
  EXPECT_EQ(waiting->Next(&event), Request::State::kFinished);
  EXPECT_EQ(waiting->summary().reason, FinishReason::kCancelled);
  EXPECT_EQ(running->Next(&event), Request::State::kEvent);
  running->Cancel();
}

// A page that leaked would be missing for the requests at the end, which take the whole pool.
TEST(Engine, FreesThePagesOfCancelledRequests) {
  Engine engine(Load(Dense(), 256, 2, 1, 16));
  std::mt19937 random(1);
  for (int i = 0; i < 60; ++i) {
    auto request =
        engine.Submit(Greedy(RandomPrompt(static_cast<uint32_t>(i), 1 + random() % 250), -1))
            .value();
    Event event;
    for (uint32_t read = random() % 3; read > 0; --read)
      request->Next(&event, std::chrono::milliseconds(random() % 3));
    request->Cancel();
    if (random() % 2 == 0) request->Cancel();
    if (random() % 2 == 0) Collect(*request);
  }
  for (const Answer& answer :
       AskTogether(engine, {Greedy(RandomPrompt(1, 10), -1), Greedy(RandomPrompt(2, 10), -1)})) {
    EXPECT_EQ(answer.summary.generated_tokens, 246);
  }
}

TEST(Engine, WaitsForEventsAsLongAsAsked) {
  Engine engine(Load(Dense()));
  auto request = engine.Submit(Greedy({5}, 2)).value();
  Event event;
  // The longest time there is does not wrap around to none.
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(request->Next(&event, std::chrono::milliseconds::max()), Request::State::kEvent);
  }
  EXPECT_EQ(request->Next(&event, std::chrono::milliseconds::max()), Request::State::kFinished);
  EXPECT_EQ(request->Next(&event, std::chrono::milliseconds(0)), Request::State::kFinished);
}

TEST(Engine, CancelsWhatIsUnderWayWhenItGoes) {
  std::vector<std::shared_ptr<Request>> requests;
  std::thread reader;
  {
    Engine engine(Load(Dense(), 4096, 2));
    for (uint32_t i = 0; i < 5; ++i)
      requests.push_back(engine.Submit(Greedy(RandomPrompt(i, 80), -1)).value());
    reader = std::thread([&] {
      Event event;
      while (requests[4]->Next(&event) == Request::State::kEvent) continue;
    });
    Event event;
    ASSERT_EQ(requests[0]->Next(&event), Request::State::kEvent);
  }
  reader.join();
  for (const auto& request : requests) {
    Event event;
    while (request->Next(&event) == Request::State::kEvent) continue;
    EXPECT_EQ(request->summary().reason, FinishReason::kCancelled);
  }
}

TEST(Engine, ServesAPromptBesideAsManyAnswersAsItHasRows) {
  // More answers under way than tokens in a micro-batch: the prompt still comes to its turn.
  Engine engine(Load(Dense(), 4096, 3, 1, 1));
  auto first = engine.Submit(Greedy({5}, -1)).value(),
       second = engine.Submit(Greedy({6}, -1)).value();
  Event event;
  ASSERT_EQ(first->Next(&event), Request::State::kEvent);
  ASSERT_EQ(second->Next(&event), Request::State::kEvent);
  EXPECT_EQ(Ask(engine, Greedy(RandomPrompt(1, 20), 3)).summary.generated_tokens, 3);
  EXPECT_EQ(first->Next(&event, std::chrono::milliseconds(0)), Request::State::kEvent)
      << "the answer ended first";
  first->Cancel();
  second->Cancel();
}

// One token's embedding is poison. Its request fails with the step's name; mates and those who come after are not touched.
void ExpectContained(const std::string& path, float poison, std::string_view step) {
  constexpr int32_t kPoisoned = 299;
  std::vector<int32_t> bad = RandomPrompt(1, 120);
  for (int32_t& token : bad) token = token == kPoisoned ? 3 : token;
  std::vector<RequestOptions> good;
  for (uint32_t seed = 2; seed < 4; ++seed) {
    good.push_back(Greedy(bad, 20));
    for (int32_t& token : good.back().prompt)
      token = 3 + (token + static_cast<int32_t>(seed)) % 290;
    good.back().sampling.logit_bias = {{kPoisoned, -std::numeric_limits<float>::infinity()}};
  }
  Engine engine(Load(path, 192, 3, 2, 50));
  std::vector<Answer> alone;
  for (const RequestOptions& request : good) {
    alone.push_back(Ask(engine, request));
    ASSERT_EQ(alone.back().summary.error, "");
  }
  for (size_t at : {size_t{0}, size_t{70}, bad.size() - 1}) {
    SCOPED_TRACE(fmt::format("poison {} at {}", poison, at));
    RequestOptions poisoned = Greedy(bad, 20);
    poisoned.prompt[at] = kPoisoned;
    for (int time = 0; time < 2; ++time) {
      const std::vector<Answer> answers = AskTogether(engine, {good[0], poisoned, good[1]});
      EXPECT_EQ(answers[1].summary.reason, FinishReason::kError);
      EXPECT_EQ(answers[1].summary.error,
                fmt::format("{}: expected finite numbers, found NaN or infinity at position {}",
                            step, at));
      ExpectSame(answers[0], alone[0]);
      ExpectSame(answers[2], alone[1]);
    }
    // Pages where the poison was serve others now.
    for (size_t i = 0; i < good.size(); ++i) {
      good[i].cache_prompt = false;
      ExpectSame(Ask(engine, good[i]), alone[i]);
      good[i].cache_prompt = true;
    }
  }
}

TEST(Engine, ContainsNumbersThatAreNotFinite) {
  TempFolder folder;
  for (float poison :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    TinyModel model{TinyOptions{}};
    std::vector<float>& embedding = model.tensor("token_embd.weight").values;
    embedding[299 * 64 + 5] = poison;
    const std::string f32 = folder / "f32.gguf", q8 = folder / "q8.gguf";
    model.Write(f32);
    WriteInFormat(GgufFile::Open(f32), *FindFormat("Q8_0"), q8, "token_embd");
    ExpectContained(f32, poison, "blk.0.kv_append");
    ExpectContained(q8, poison, "blk.0.norm.q8");
  }
}

// Weights that are finite, activations that are not: every request fails, the engine stays.
TEST(Engine, NamesTheStepThatOverflows) {
  struct Case {
    const char* tensor;
    const char* step;
  };
  TempFolder folder;
  const std::string path = folder / "huge.gguf";
  for (const Case& c : {Case{"blk.0.attn_v.weight", "blk.0.kv_append"},
                        {"blk.0.ffn_up.weight", "blk.1.kv_append"},
                        {"output.weight", "logits"}}) {
    TinyModel model{TinyOptions{}};
    for (float& weight : model.tensor(c.tensor).values) weight = weight < 0 ? -3e38f : 3e38f;
    model.Write(path);
    Engine engine(Load(path));
    for (int time = 0; time < 2; ++time) {
      const Answer answer = Ask(engine, Greedy(RandomPrompt(1, 10), 3));
      EXPECT_EQ(answer.summary.reason, FinishReason::kError);
      EXPECT_TRUE(answer.summary.error.starts_with(c.step))
          << c.tensor << ": " << answer.summary.error;
      EXPECT_EQ(answer.summary.error.find('\n'), std::string::npos);
    }
  }
}

// F7: says the texts of `chain` one after the other, then the end of text. No layer has a say: the embedding is one-hot and the head
// maps each token to its follower.
struct Parrot {
  static constexpr int32_t kFirst = 259;

  explicit Parrot(const std::vector<std::string>& chain, bool endless = false) {
    TinyOptions options;
    options.vocab = 288;
    options.width = 288;
    TinyModel model(options);
    for (TinyTensor& tensor : model.tensors) {
      if (tensor.name.ends_with("norm.weight")) continue;
      std::fill(tensor.values.begin(), tensor.values.end(), 0.0f);
    }
    auto tokens = std::get<std::vector<std::string>>(model.keys["tokenizer.ggml.tokens"]);
    auto set = [&](const char* name, int64_t row, int64_t column) {
      model.tensor(name).values[static_cast<size_t>(row * options.width + column)] = 1;
    };
    for (size_t i = 0; i < chain.size(); ++i) tokens[kFirst + i] = chain[i];
    model.keys["tokenizer.ggml.tokens"] = tokens;
    model.keys["tokenizer.ggml.merges"] = std::vector<std::string>{};
    for (int64_t token = 0; token < options.vocab; ++token) set("token_embd.weight", token, token);
    std::fill(model.tensor("output_norm.weight").values.begin(),
              model.tensor("output_norm.weight").values.end(), 1.0f);
    // The prompt is token 0.
    const auto last = kFirst + static_cast<int32_t>(chain.size()) - 1;
    set("output.weight", kFirst, 0);
    for (int32_t token = kFirst; token < last; ++token) set("output.weight", token + 1, token);
    set("output.weight", endless ? kFirst : 2, last);
    path = folder / "parrot.gguf";
    model.Write(path);
  }

  Answer Say(const std::vector<std::string>& stop, bool include_stop = false,
             int64_t max_tokens = -1) const {
    Engine engine(Load(path, 64));
    RequestOptions options = Greedy({0}, max_tokens);
    options.ignore_eos = false;
    options.stop = stop;
    options.include_stop = include_stop;
    return Ask(engine, options);
  }

  TempFolder folder;
  std::string path;
};

TEST(EngineReports, B019StopTextNeitherLeaksNorIsMissed) {
  const Parrot parrot({"ab", "c|", "|d"});
  const Answer all = parrot.Say({});
  EXPECT_EQ(all.text, "abc||d");
  EXPECT_EQ(all.summary.reason, FinishReason::kStop);
  EXPECT_EQ(all.summary.stop_text, "");
  const Answer without = parrot.Say({"||"}), with = parrot.Say({"||"}, true);
  EXPECT_EQ(without.text, "abc");
  EXPECT_EQ(with.text, "abc||");
  for (const Answer* answer : {&without, &with}) {
    EXPECT_EQ(answer->summary.reason, FinishReason::kStop);
    EXPECT_EQ(answer->summary.stop_text, "||");
    EXPECT_EQ(answer->summary.generated_tokens, 3);
  }
  // Text held back for a stop string that does not come is not lost.
  EXPECT_EQ(parrot.Say({"|d|"}).text, "abc||d");
}

TEST(EngineReports, B020HoldingBackForStopStringsCutsNoMarker) {
  EXPECT_EQ(Parrot({"x", "</think>", "y"}).Say({"q", "r"}).pieces,
            (std::vector<std::string>{"x", "</think>", "y"}));
}

TEST(EngineReports, B022ReasonIsLengthWhereTheLimitEndsTheAnswer) {
  const Answer answer = Parrot({"a", "b"}, true).Say({}, false, 5);
  EXPECT_EQ(answer.text, "ababa");
  EXPECT_EQ(answer.summary.reason, FinishReason::kLength);
  EXPECT_EQ(answer.summary.generated_tokens, 5);
}

TEST(EngineReports, GoesPastTheEndOfTextWhereAsked) {
  const Parrot parrot({"a", "b"});
  Engine engine(Load(parrot.path, 64));
  RequestOptions options = Greedy({0}, -1);
  options.max_tokens = 6;
  const Answer past = Ask(engine, options);
  EXPECT_EQ(past.summary.reason, FinishReason::kLength);
  EXPECT_EQ(past.summary.generated_tokens, 6);
  options.ignore_eos = false;
  const Answer until = Ask(engine, options);
  EXPECT_EQ(until.summary.reason, FinishReason::kStop);
  EXPECT_EQ(until.tokens, (std::vector<int32_t>{Parrot::kFirst, Parrot::kFirst + 1, 2}));
  EXPECT_EQ(until.text, "ab");
  options.show_special = true;
  EXPECT_EQ(Ask(engine, options).text, "ab</s>");
}

}  // namespace
}  // namespace lockstep::test
